import { Centrifuge, Room } from "./room-client.min.js";

// As in src/main.rs: the kinds of objects, and the fastest step in one tick.
const RUNNER = 1;
const SPEED = 8;

const KEYS = {
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
  KeyA: [-1, 0], KeyD: [1, 0], KeyW: [0, -1], KeyS: [0, 1],
};
const UNITS_ACROSS = 1_400; // what the longer side of the window shows
const SQUARE_UNITS = 128; // a square of the ground
const MARGIN = { x: 40, y: 110 }; // pixels outside of the field, so that no text covers its edges
const NEWS_MS = 3_000;

const element = (id) => document.getElementById(id);
const map = element("map");
const show = (id, text) => {
  if (element(id).textContent !== text) element(id).textContent = text;
};

// A browser may refuse storage to a page. Then a page that is loaded again is another player.
function kept(key) {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}
function keep(key, value) {
  try {
    sessionStorage.setItem(key, value);
  } catch {
    // Nothing is kept.
  }
}

// --- The room ---

const scheme = location.protocol === "https:" ? "wss" : "ws";
const client = new Centrifuge(`${scheme}://${location.hostname}:8000/connection/websocket`);
const name = element("name");
name.value = kept("name") ?? `Guest ${Math.floor(Math.random() * 900) + 100}`;
let room = enter(kept("seat"));
client.connect();

/** Joins the room. With the token of a seat, the player of that seat comes back. */
function enter(seatToken) {
  keep("name", name.value);
  const data = { name: name.value };
  const entered = new Room(client, "field:1", { encoding: "protobuf", typed: true, data, ...(seatToken ? { seatToken } : {}) });
  show("state", "Joining");
  entered.on("joined", () => {
    keep("seat", entered.seatToken ?? "");
    // A join that comes back is a player that stands: send the keys that are held.
    [sent.x, sent.y] = [0, 0];
  });
  entered.on("left", ({ reason, rejoins }) => {
    if (entered !== room) return; // another name
    show("state", rejoins ? `The connection is lost (${reason}). Joining again` : `You have left: ${reason}`);
  });
  entered.on("error", (error) => show("state", error.message));
  entered.onEvent("star", ({ player }) => {
    tell(player === entered.replica.avatar ? "You score a point!" : `${nameOf(player)} scores a point`);
  });
  entered.join();
  return entered;
}

// Another name is another player, who begins with no points.
name.addEventListener("change", () => {
  room.leave();
  room = enter(null);
  map.focus();
});

/** A runner, with the fields that the game declares. */
function runnerOf(object) {
  const { name, points } = room.replica.fields(object);
  return { id: object.id, name: name || `Player ${object.id}`, points, isMe: object.id === room.replica.avatar };
}

function nameOf(id) {
  const object = room.replica.object(id);
  return object === undefined ? `Player ${id}` : runnerOf(object).name;
}

function tell(text) {
  show("news", text);
  setTimeout(() => element("news").textContent === text && show("news", ""), NEWS_MS);
}

// --- Keys and fingers ---

const pressed = new Set();
const sent = { x: 0, y: 0 };
let finger = null; // where a finger or the mouse is, in pixels

addEventListener("keydown", (event) => {
  if (!(event.code in KEYS) || event.target === name || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  pressed.add(event.code);
});
addEventListener("keyup", (event) => pressed.delete(event.code));
addEventListener("blur", () => pressed.clear());
map.addEventListener("pointerdown", (event) => {
  map.setPointerCapture(event.pointerId);
  finger = { x: event.clientX, y: event.clientY };
});
map.addEventListener("pointermove", (event) => {
  if (finger !== null) finger = { x: event.clientX, y: event.clientY };
});
for (const end of ["pointerup", "pointercancel"]) map.addEventListener(end, () => (finger = null));

/** Sends where the player wants to go, when that has changed. */
function run(me, camera) {
  let [x, y] = [...pressed].reduce(([x, y], code) => [x + KEYS[code][0], y + KEYS[code][1]], [0, 0]);
  if (finger !== null) [x, y] = [finger.x - camera.x(me.x), finger.y - camera.y(me.y)];
  const length = Math.hypot(x, y);
  // A finger on the player itself stops it.
  const speed = length === 0 || (finger !== null && length < 12) ? 0 : SPEED / length;
  const step = { x: Math.round(x * speed), y: Math.round(y * speed) };
  if (room.state !== "joined" || (step.x === sent.x && step.y === sent.y)) return;
  [sent.x, sent.y] = [step.x, step.y];
  room.send(Uint8Array.of(step.x & 255, step.y & 255));
}

// --- Drawing ---

/** The part of the field in the window: around the player, and within the edges of the field where it fits. */
function cameraAt(place, { widthUnits, heightUnits }) {
  const [width, height] = [map.clientWidth, map.clientHeight];
  const scale = Math.max(width, height) / UNITS_ACROSS;
  const within = (at, shown, size) => {
    const [least, most] = [shown / 2 / scale, size - shown / 2 / scale];
    return least > most ? size / 2 : Math.min(Math.max(at, least), most);
  };
  const centerX = within(place.x, width - 2 * MARGIN.x, widthUnits);
  const centerY = within(place.y, height - 2 * MARGIN.y, heightUnits);
  const [x, y] = [(x) => (x - centerX) * scale + width / 2, (y) => (y - centerY) * scale + height / 2];
  return { width, height, scale, x, y };
}

function drawGround(context, camera, { widthUnits, heightUnits }, color) {
  const [left, top, right, bottom] = [camera.x(0), camera.y(0), camera.x(widthUnits), camera.y(heightUnits)];
  context.fillStyle = color("ground");
  context.fillRect(left, top, right - left, bottom - top);
  context.fillStyle = color("square");
  const side = SQUARE_UNITS * camera.scale;
  for (let column = 0; column * SQUARE_UNITS < widthUnits; column += 1) {
    for (let row = column % 2; row * SQUARE_UNITS < heightUnits; row += 2) {
      context.fillRect(left + column * side, top + row * side, side, side);
    }
  }
  context.strokeStyle = color("edge");
  context.lineWidth = 6;
  context.strokeRect(left, top, right - left, bottom - top);
}

function drawRunner(context, camera, place, runner, color) {
  const [x, y] = [camera.x(place.x), camera.y(place.y)];
  // Each player has another color; neighbouring numbers differ most.
  context.fillStyle = runner.isMe ? color("me") : `hsl(${(runner.id * 137) % 360} 45% ${color("other-lightness")})`;
  context.beginPath();
  context.arc(x, y, 14, 0, 2 * Math.PI);
  context.fill();
  if (runner.isMe) {
    context.strokeStyle = color("text");
    context.lineWidth = 3;
    context.stroke();
  }
  context.font = `${runner.isMe ? "bold " : ""}14px system-ui, sans-serif`;
  context.textAlign = "center";
  context.fillStyle = color("text");
  context.fillText(runner.name, x, y - 22);
}

function drawStar(context, x, y, color) {
  context.fillStyle = color("star");
  context.beginPath();
  for (let point = 0; point < 10; point += 1) {
    const [angle, radius] = [(point * Math.PI) / 5 - Math.PI / 2, point % 2 === 0 ? 18 : 8];
    context.lineTo(x + Math.cos(angle) * radius, y + Math.sin(angle) * radius);
  }
  context.fill();
}

/** An arrow beside the player that points to a star outside of the window. */
function drawArrow(context, camera, me, star, color) {
  const [x, y] = [camera.x(star.x), camera.y(star.y)];
  if (x > 0 && y > 0 && x < camera.width && y < camera.height) return;
  const angle = Math.atan2(star.y - me.y, star.x - me.x);
  context.save();
  context.translate(camera.x(me.x), camera.y(me.y));
  context.rotate(angle);
  context.fillStyle = color("star");
  context.beginPath();
  context.moveTo(66, 0);
  context.lineTo(42, -13);
  context.lineTo(48, 0);
  context.lineTo(42, 13);
  context.fill();
  context.restore();
}

/** The runners with the most points, the first one on top. */
function showPoints(runners) {
  const first = runners.sort((a, b) => b.points - a.points || a.id - b.id).slice(0, 5);
  const lines = first.map(({ name, points, isMe }) => ({ text: `${name}: ${points}`, isMe }));
  const text = JSON.stringify(lines);
  if (element("points").dataset.shown === text) return;
  element("points").dataset.shown = text;
  const item = ({ text, isMe }) => {
    return Object.assign(document.createElement("li"), { textContent: text, className: isMe ? "me" : "" });
  };
  element("points").replaceChildren(...lines.map(item));
}

function fitted() {
  const [width, height] = [map.clientWidth, map.clientHeight].map((side) => Math.round(side * devicePixelRatio));
  if (map.width !== width || map.height !== height) Object.assign(map, { width, height });
  const context = map.getContext("2d");
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, map.clientWidth, map.clientHeight);
  return context;
}

function draw() {
  requestAnimationFrame(draw);
  const { replica, interpolation, clock } = room;
  const avatar = replica.object(replica.avatar);
  if (avatar === undefined || replica.grid === null) return;
  const styles = getComputedStyle(document.documentElement);
  const color = (name) => styles.getPropertyValue(`--${name}`);
  // Everything is drawn with a short delay, so that it moves smoothly.
  const shownMs = interpolation.advance(clock.serverTimeMs(performance.now()));
  const placeOf = (object) => interpolation.place(object.id, shownMs) ?? object;
  const me = placeOf(avatar);
  const camera = cameraAt(me, replica.grid);
  const context = fitted();
  drawGround(context, camera, replica.grid, color);
  const runners = [];
  for (const object of replica.objects()) {
    const place = placeOf(object);
    if (object.kind === RUNNER) {
      const runner = runnerOf(object);
      runners.push(runner);
      drawRunner(context, camera, place, runner, color);
    } else {
      drawStar(context, camera.x(place.x), camera.y(place.y), color);
      drawArrow(context, camera, me, place, color);
    }
  }
  showPoints(runners);
  show("state", `You are player ${avatar.id} at ${avatar.x}, ${avatar.y}`);
  run(me, camera);
}
draw();
