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
export const past = pair => known.history.pairs[pair.name] ?? { changes: [], samples: [], seen: {} };

// Of many pairs nobody looks for the one in trouble: they come as the headline has them. Where buttons are they keep
// their places, so that none moves away under the hand.
export function worstFirst({ pairs, headline }) {
  const names = headline.said.map(one => one.pair);
  const place = ({ name }) => names.includes(name) ? names.indexOf(name) : names.length;
  return [...pairs].sort((one, other) => place(one) - place(other));
}

export const isRunning = () => known.state.pairs.some(pair => pair.clients.some(one => !one.is_gone));
