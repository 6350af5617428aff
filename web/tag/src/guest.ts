/** A user id for the visitor of the demo, from a token that the server issues to guests. It stays the same while the tab is open. */

import { fieldsOf, text } from "./events";

/** The code with which the server ends a connection whose token is invalid. */
export const INVALID_TOKEN = 3500;

const KEY = "dunlin.guest";
const PLACE = "../lobby/guest";

/** A token for the SDK; null if this server issues none. Then the visitor is anonymous, and matchmaking is not available. */
export async function guestToken(): Promise<string | null> {
  const known = stored();
  if (known !== null) return known;
  const answer = await fetch(PLACE).catch(() => null);
  if (answer === null || !answer.ok) return null;
  const token = text(fieldsOf(await answer.json().catch(() => null))["token"]);
  if (token === "") return null;
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // Without storage, each page is a new guest.
  }
  return token;
}

/** Options of the SDK with the guest's token. A token that the server refuses is replaced. */
export async function guestOptions(): Promise<{ token?: string; getToken?: () => Promise<string> }> {
  const token = await guestToken();
  if (token === null) return {};
  return {
    token,
    getToken: async () => {
      forgetGuest();
      const next = await guestToken();
      if (next === null) throw new Error("the server gives no token");
      return next;
    },
  };
}

/** Removes the token, so that the next page gets a new one. */
export function forgetGuest(): void {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing was stored.
  }
}

function stored(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}
