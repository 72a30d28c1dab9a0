/** The newest calls that the page knows, by sequence number. */
const MAX_CALLS = 5000;

/** Keeps calls in the order of their sequence numbers; `version` counts changes. */
export class CallLog {
  #calls = [];
  version = 0;
  skipped = 0;

  /** The calls, oldest first; to be read only. */
  get calls() {
    return this.#calls;
  }

  get newest() {
    return this.#calls.at(-1)?.seq ?? 0;
  }

  /** The call of a sequence number, if it is known. */
  find(seq) {
    const call = this.#calls[this.#position(seq)];
    return call?.seq === seq ? call : null;
  }

  /** The number of calls after a sequence number; these have gaps. */
  after(seq) {
    const at = this.#position(seq);
    return this.#calls.length - at - (this.#calls[at]?.seq === seq ? 1 : 0);
  }

  /** Takes a call that began, or the end of one that is known. */
  put(call) {
    const at = this.#position(call.seq);
    const known = this.#calls[at];
    if (known?.seq !== call.seq) this.#calls.splice(at, 0, call);
    // The end may be known before an older answer says that the call runs.
    else if (known.ms === null || call.ms !== null) this.#calls[at] = call;
    // Some at a time: to move 5000 entries with each call would cost more than drawing them.
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
    // Nearly every call is the newest.
    if (!high || this.#calls[high - 1].seq < seq) return high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#calls[middle].seq < seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
