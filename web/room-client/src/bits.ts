/** Numbers of some bits each in bytes: the lowest bit first, in the lowest free bit of a byte. */

import { malformed } from "./error.js";

/** Bits of the classes of a count, which begins with as many ones and a zero. The last class has no zero. */
const COUNT_BITS = [0, 4, 8, 16, 32];

export class BitReader {
  /** The index of the next bit. */
  private at = 0;

  constructor(private readonly bytes: Uint8Array) {}

  /** The next bits, at most 32. @throws RoomError after the end. */
  take(bits: number): number {
    if (this.at + bits > this.bytes.length * 8) throw malformed("the changes end early");
    let number = 0;
    for (let done = 0; done < bits; ) {
      const used = this.at & 7;
      const count = Math.min(8 - used, bits - done);
      const part = ((this.bytes[this.at >>> 3] ?? 0) >>> used) & ((1 << count) - 1);
      number += part * 2 ** done;
      done += count;
      this.at += count;
    }
    return number;
  }

  flag(): boolean {
    return this.take(1) === 1;
  }

  /** A number that is small most of the time. */
  count(): number {
    let first = 0;
    let place = 0;
    while (place + 1 < COUNT_BITS.length && this.flag()) {
      first += 2 ** (COUNT_BITS[place] ?? 0);
      place += 1;
    }
    const number = first + this.take(COUNT_BITS[place] ?? 0);
    if (number > 0xffff_ffff) throw malformed("a count has more than 32 bits");
    return number;
  }

  /** A number with a sign, in some bits. */
  signed(bits: number): number {
    const half = 2 ** (bits - 1);
    const number = this.take(bits);
    return number < half ? number : number - 2 * half;
  }

  /** Whether nothing is left but the zeros that fill the last byte. */
  get done(): boolean {
    const left = this.bytes.length * 8 - this.at;
    return left < 8 && this.take(left) === 0;
  }
}

/** Bits of the numbers up to a maximum. */
export function bitsOf(max: number): number {
  return 32 - Math.clz32(max);
}
