/** The text of the page is the one of the pages of commands. */

export { visible } from "../../../crates/server/src/cli/page/dom.js";
