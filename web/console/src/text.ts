/** Control characters except line ends and tabs, and format characters of Unicode. */
const UNSEEN = /[\p{Cf}\p{Cc}\u2028\u2029]/gu;

export function visible(text: string): string {
  return text.replace(UNSEEN, (c) => (c === "\n" || c === "\t" ? c : `\\u{${c.codePointAt(0)?.toString(16)}}`));
}
