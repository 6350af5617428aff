/** The console: sign-in, the menu, and the view that the address names. */

import { NoAnswer, SignedOut, signIn, signOut, status as askStatus, whoAmI } from "./api";
import { el, fill, setText } from "./dom";
import { History, INTERVAL_MS, nameOf } from "./history";
import type { SignIn } from "./types";
import { hash, noticePlace, showMissing, type Context, type View } from "./view";
import { VIEWS, viewOf } from "./views";

const app = document.querySelector("#app") as HTMLElement;

async function start(): Promise<void> {
  for (;;) {
    try {
      const signedIn = await whoAmI();
      if (signedIn.role) open(signedIn);
      else askPassword("");
      return;
    } catch (error) {
      fill(app, el("main", { class: "sign-in" }, el("p", { role: "status" }, `${message(error)}: trying again …`)));
      await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
    }
  }
}

function askPassword(why: string): void {
  document.title = "Sign in · Dunlin console";
  const password = el("input", { id: "password", type: "password", autocomplete: "current-password", required: true });
  const refused = el("p", { class: "bad", role: "alert" }, why);
  const button = el("button", { class: "primary" }, "Sign in");
  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    button.disabled = true;
    try {
      open(await signIn(password.value));
    } catch (error) {
      setText(refused, message(error));
      password.select();
      password.focus();
    } finally {
      button.disabled = false;
    }
  }
  const form = el(
    "form",
    { class: "panel", onsubmit: (event) => void submit(event) },
    el("h1", {}, "Dunlin console"),
    el("label", { for: "password" }, "Password"),
    password,
    refused,
    button,
  );
  fill(app, el("main", { class: "sign-in" }, form));
  password.focus();
}

function open(signedIn: SignIn): void {
  new Shell(signedIn);
}

/** What surrounds the views. */
class Shell {
  private readonly history = new History();
  private readonly place = el("div", {});
  private readonly heading = el("h1", {});
  private readonly where = el("p", { class: "where" });
  private readonly silent = el("p", { class: "silent", role: "alert", hidden: true });
  private readonly missing = noticePlace();
  private readonly main = el("main", { id: "main", class: "content", tabindex: "-1" }, this.silent, this.missing, this.heading, this.place);
  private readonly menu = el("ul", {});
  private view: View | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isOpen = true;
  private readonly context: Context;
  private readonly moved = () => this.show(true);

  constructor(signedIn: SignIn) {
    this.context = {
      history: this.history,
      signIn: signedIn,
      ownName: () => nameOf(this.history.status?.nodes[0] ?? { name: "this node", uid: "" }),
      signedOut: () => this.close("The sign-in has ended."),
    };
    for (const [name, { title }] of Object.entries(VIEWS)) {
      this.menu.append(el("li", {}, el("a", { href: hash(name), "data-view": name }, title)));
    }
    const out = el("button", { type: "button", onclick: () => void this.signOut() }, "Sign out");
    const role = signedIn.role === "reader" ? "read only" : "operator";
    fill(
      app,
      el("a", { class: "skip", href: "#main", onclick: (event) => (event.preventDefault(), this.main.focus()) }, "Skip to the content"),
      el("header", {}, el("strong", {}, "Dunlin"), this.where, el("span", { class: "role" }, role), signedIn.ends_at_s ? out : null),
      el("nav", { "aria-label": "Views" }, this.menu),
      this.main,
      el("div", { id: "told", role: "status" }),
    );
    addEventListener("hashchange", this.moved);
    this.show(false);
    void this.poll();
  }

  private show(takesFocus: boolean): void {
    const parts = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
    this.view?.stop?.();
    const { name, view } = viewOf(this.context, parts);
    this.view = view;
    document.title = `${view.title} · Dunlin console`;
    setText(this.heading, view.title);
    fill(this.place, view.element);
    for (const link of this.menu.querySelectorAll("a")) {
      if (link.dataset["view"] !== name) {
        link.removeAttribute("aria-current");
        continue;
      }
      link.setAttribute("aria-current", "page");
      // On a phone, the menu is wider than the page.
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    if (takesFocus) {
      scrollTo(0, 0);
      this.main.focus({ preventScroll: true });
    }
    view.onStatus?.();
  }

  private async poll(): Promise<void> {
    try {
      const status = await askStatus();
      if (!this.isOpen) return;
      this.history.push(status);
      this.silent.hidden = true;
      const nodes = status.nodes.length + status.missing.length;
      setText(this.where, nodes > 1 ? `${nodes} nodes, seen from ${this.context.ownName()}` : this.context.ownName());
      // On each view: what it shows of these nodes is missing as well.
      showMissing(this.missing, status.missing);
      this.view?.onStatus?.();
    } catch (error) {
      if (!this.isOpen) return;
      if (error instanceof SignedOut) return this.close("The sign-in has ended.");
      this.silent.hidden = false;
      setText(this.silent, error instanceof NoAnswer ? "The node does not answer. The figures are old." : message(error));
    }
    this.timer = setTimeout(() => void this.poll(), INTERVAL_MS);
  }

  private async signOut(): Promise<void> {
    try {
      await signOut();
    } catch (error) {
      if (!(error instanceof SignedOut)) {
        this.silent.hidden = false;
        return setText(this.silent, message(error));
      }
    }
    this.close("");
  }

  private close(why: string): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    clearTimeout(this.timer);
    removeEventListener("hashchange", this.moved);
    this.view?.stop?.();
    for (const dialog of document.querySelectorAll("dialog")) dialog.close("");
    askPassword(why);
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function message(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.charAt(0).toUpperCase() + text.slice(1);
}

void start();
