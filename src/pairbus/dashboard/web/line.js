// The line to the server: what it tells comes as server-sent events, read by `fetch`, since an EventSource cannot show
// a token. When it is cut it is taken up again, at first at once and then ever less often, 10 s at most.

const FIRST = 500, LONGEST = 10000;
// The server says something at least every ten seconds.
const SILENCE = 25000;

export class Refused extends Error {}

export class Line {
  constructor({ token, onEvent, onState }) {
    this.token = token;
    this.onEvent = onEvent;
    this.onState = onState;
  }

  headers(more = {}) {
    return this.token ? { Authorization: `Bearer ${this.token}`, ...more } : more;
  }

  async listen() {
    let pause = FIRST;
    for (;;) {
      try {
        await this.follow(() => { pause = FIRST; });
        this.onState("lost");
      } catch (error) {
        if (error instanceof Refused) throw error;
        this.onState("lost");
      }
      await new Promise(resolve => setTimeout(resolve, pause));
      pause = Math.min(LONGEST, pause * 1.6);
    }
  }

  async follow(onAnswer) {
    const given_up = new AbortController();
    let timer = 0;
    const heard = () => { clearTimeout(timer); timer = setTimeout(() => given_up.abort(), SILENCE); };
    heard();
    try {
      const answer = await fetch("/api/events",
        { headers: this.headers(), signal: given_up.signal, cache: "no-store" });
      if (answer.status === 401) throw new Refused();
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      onAnswer();
      this.onState("live");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        heard();
        text += value;
        const parts = text.split("\n\n");
        text = parts.pop();
        parts.forEach(part => this.take(part));
      }
    } finally {
      clearTimeout(timer);
    }
  }

  take(part) {
    let name = "", data = "";
    for (const line of part.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (name) this.onEvent(name, JSON.parse(data));
  }

  async ask(path, body) {
    const answer = await fetch(path, {
      method: body ? "POST" : "GET",
      headers: this.headers(body ? { "Content-Type": "application/json" } : {}),
      body: body ? JSON.stringify(body) : undefined,
      cache: "no-store",
    }).catch(() => { throw new Error("The dashboard does not answer: is it still running?"); });
    const said = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
    if (!answer.ok) throw new Error(said.error ?? `status ${answer.status}`);
    return said;
  }
}
