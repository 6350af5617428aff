// Waits for events of an emitter: in order, each event once, with a deadline.
export const DEADLINE_MS = 20_000;

export class Events {
  #unread = [];
  #all = [];
  #waiting = null;

  /** Starts listening to these events of the emitter. */
  constructor(emitter, names) {
    for (const name of names) {
      emitter.on(name, (context) => {
        this.#unread.push({ name, context });
        this.#all.push({ name, context });
        this.#waiting?.();
      });
    }
  }

  /** The next unread event of this name (others stay unread). */
  async next(name) {
    const deadline = Date.now() + DEADLINE_MS;
    for (;;) {
      const index = this.#unread.findIndex((event) => event.name === name);
      if (index >= 0) return this.#unread.splice(index, 1)[0].context;
      if (!(await this.#arrival(deadline))) {
        const seen = this.#all.map((event) => `${event.name} ${JSON.stringify(event.context)}`);
        throw new Error(`no '${name}' within ${DEADLINE_MS} ms; seen: ${seen.join('; ') || 'nothing'}`);
      }
    }
  }

  /** The next `count` events of this name, in order. */
  async take(name, count) {
    const taken = [];
    while (taken.length < count) taken.push(await this.next(name));
    return taken;
  }

  /** The number of received events of this name, including unread ones. */
  count(name) {
    return this.#all.filter((event) => event.name === name).length;
  }

  #arrival(deadline) {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), Math.max(0, deadline - Date.now()));
      this.#waiting = () => {
        clearTimeout(timer);
        this.#waiting = null;
        resolve(true);
      };
    });
  }
}

/** Resolves `promise`, or throws once the deadline has passed. */
export async function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${DEADLINE_MS} ms`)), DEADLINE_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
