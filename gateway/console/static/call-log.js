/** The latest known calls by sequence number. */
const MAX_CALLS = 5000;

/** Calls in the order of their sequence numbers. `version` counts changes. */
export class CallLog {
  #calls = [];
  version = 0;
  skipped = 0;

  /** The calls, oldest first. Do not change. */
  get calls() {
    return this.#calls;
  }

  get newest() {
    return this.#calls.at(-1)?.seq ?? 0;
  }

  /** Return the call with a sequence number, or undefined. */
  find(seq) {
    const call = this.#calls[this.#position(seq)];
    return call?.seq === seq ? call : null;
  }

  /** Return the number of calls after a sequence number. Sequence numbers have gaps. */
  after(seq) {
    const at = this.#position(seq);
    return this.#calls.length - at - (this.#calls[at]?.seq === seq ? 1 : 0);
  }

  /** Add a call, or the end of a known call. */
  put(call) {
    const at = this.#position(call.seq);
    const known = this.#calls[at];
    if (known?.seq !== call.seq) this.#calls.splice(at, 0, call);
    // The end can be known before an older response that contains the running call.
    else if (known.ms === null || call.ms !== null) this.#calls[at] = call;
    // Remove several at once, because moving 5000 entries for each call is slow.
    if (this.#calls.length > MAX_CALLS * 1.2) this.#calls.splice(0, this.#calls.length - MAX_CALLS);
    this.version += 1;
  }

  skip(count) {
    this.skipped += count;
    this.version += 1;
  }

  clear() {
    this.#calls = [];
    this.skipped = 0;
    this.version += 1;
  }

  #position(seq) {
    let low = 0;
    let high = this.#calls.length;
    // Almost every call is the newest.
    if (!high || this.#calls[high - 1].seq < seq) return high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#calls[middle].seq < seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
