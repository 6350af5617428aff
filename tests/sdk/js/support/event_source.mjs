// The part of a browser's EventSource that the SDK uses, implemented with fetch.
export class EventSource {
  #abort = new AbortController();

  constructor(url) {
    this.#read(url).catch((error) => {
      if (!this.#abort.signal.aborted) this.onerror?.(error);
    });
  }

  close() {
    this.#abort.abort();
  }

  async #read(url) {
    const response = await fetch(url, { signal: this.#abort.signal });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    this.onopen?.({});
    let text = '';
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
      const events = (text + piece).split('\n\n');
      text = events.pop();
      for (const event of events) {
        const lines = event.trim().split('\n').filter((line) => line.startsWith('data: '));
        this.onmessage?.({ data: lines.map((line) => line.slice(6)).join('\n') });
      }
    }
    throw new Error('the stream has ended');
  }
}
