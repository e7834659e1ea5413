// What the page knows: what the server told last, and what its reader looks for. All views draw from it.

export const known = {
  state: null,
  history: { pairs: {} },
  // Seconds by which the server's clock, by which all moments are told, is ahead of the browser's.
  skew: 0,
  control: false,
  runbook: {},
  // The entities that the reader looks for.
  wanted: "",
  // Whether the server does not answer: what is shown is old then, and must not pass for what is so now.
  lost: false,
};

export const now = () => Date.now() / 1000 + known.skew;
export const past = pair => known.history.pairs[pair.name] ?? { changes: [], samples: [] };
export const isRunning = () => known.state.pairs.some(pair => pair.clients.some(one => !one.is_gone));
