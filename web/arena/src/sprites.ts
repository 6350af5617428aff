/** The figures on the map. Each is drawn around the origin, in units, and the canvas is scaled. */

import { type Colours, playerColour } from "./colours";

type Canvas = CanvasRenderingContext2D;

const TURN = Math.PI * 2;

function disc(canvas: Canvas, x: number, y: number, radius: number): void {
  canvas.beginPath();
  canvas.arc(x, y, radius, 0, TURN);
}

function oval(canvas: Canvas, x: number, y: number, width: number, height: number): void {
  canvas.beginPath();
  canvas.ellipse(x, y, width, height, 0, 0, TURN);
}

function shadow(canvas: Canvas, colours: Colours, radius: number): void {
  canvas.fillStyle = colours.shadow;
  oval(canvas, radius * 0.14, radius * 0.2, radius * 1.04, radius * 0.96);
  canvas.fill();
}

/** A dunlin from above. `heading` in radians; `stride` increases with the distance that it has moved. */
export function drawBird(canvas: Canvas, colours: Colours, colour: number, heading: number, stride: number, isMe: boolean): void {
  const sway = Math.sin(stride / 26) * 5;
  shadow(canvas, colours, 27);
  if (isMe) {
    canvas.strokeStyle = colours.me;
    canvas.lineWidth = 5;
    canvas.globalAlpha = 0.75;
    disc(canvas, 0, 0, 46);
    canvas.stroke();
    canvas.globalAlpha = 1;
  }
  canvas.save();
  canvas.rotate(heading);
  canvas.strokeStyle = colours.gold;
  canvas.lineCap = "round";
  canvas.lineWidth = 6;
  canvas.beginPath();
  canvas.moveTo(36, 0);
  canvas.lineTo(58, 0);
  canvas.stroke();
  canvas.lineWidth = 5;
  for (const side of [-1, 1]) {
    canvas.beginPath();
    canvas.moveTo(-4 + side * sway, side * 14);
    canvas.lineTo(8 + side * sway * 2, side * 25);
    canvas.stroke();
  }
  canvas.fillStyle = playerColour(colour);
  canvas.strokeStyle = colours.plate;
  canvas.lineWidth = 4;
  canvas.beginPath();
  canvas.moveTo(-46, 0);
  canvas.quadraticCurveTo(-26, -25, 0, -23);
  canvas.quadraticCurveTo(26, -20, 28, 0);
  canvas.quadraticCurveTo(26, 20, 0, 23);
  canvas.quadraticCurveTo(-26, 25, -46, 0);
  canvas.fill();
  canvas.stroke();
  canvas.fillStyle = "rgb(0 0 0 / 22%)";
  for (const side of [-1, 1]) {
    canvas.beginPath();
    canvas.ellipse(-10, side * 12, 22, 7, side * -0.16, 0, TURN);
    canvas.fill();
  }
  canvas.fillStyle = playerColour(colour);
  canvas.strokeStyle = colours.plate;
  disc(canvas, 26, 0, 15);
  canvas.fill();
  canvas.stroke();
  canvas.fillStyle = "#fff";
  for (const side of [-1, 1]) {
    disc(canvas, 31, side * 7, 4);
    canvas.fill();
  }
  canvas.restore();
}

/** Flying earth around a digging player. */
export function drawDigging(canvas: Canvas, colours: Colours, nowMs: number): void {
  const share = (nowMs % 420) / 420;
  canvas.strokeStyle = colours.wood[1];
  canvas.lineWidth = 4;
  canvas.globalAlpha = 1 - share;
  disc(canvas, 0, 0, 34 + share * 26);
  canvas.stroke();
  canvas.fillStyle = colours.wood[1];
  for (let clod = 0; clod < 7; clod += 1) {
    const angle = (clod / 7) * TURN + clod;
    disc(canvas, Math.cos(angle) * (24 + share * 40), Math.sin(angle) * (24 + share * 34) - Math.sin(share * Math.PI) * 20, 6 - share * 3);
    canvas.fill();
  }
  canvas.globalAlpha = 1;
}

export function drawTree(canvas: Canvas, colours: Colours, size: number, seed: number): void {
  const radius = 44 + size * 17;
  shadow(canvas, colours, radius);
  canvas.fillStyle = colours.leaf[0];
  for (let lobe = 0; lobe < 6; lobe += 1) {
    const angle = (lobe / 6) * TURN + seed;
    disc(canvas, Math.cos(angle) * radius * 0.5, Math.sin(angle) * radius * 0.5, radius * 0.56);
    canvas.fill();
  }
  canvas.fillStyle = colours.leaf[1];
  for (let lobe = 0; lobe < 4; lobe += 1) {
    const angle = (lobe / 4) * TURN + seed * 2;
    disc(canvas, Math.cos(angle) * radius * 0.26 - radius * 0.12, Math.sin(angle) * radius * 0.26 - radius * 0.14, radius * 0.36);
    canvas.fill();
  }
}

export function drawRock(canvas: Canvas, colours: Colours, size: number, seed: number): void {
  const radius = 24 + size * 10;
  shadow(canvas, colours, radius);
  for (const [at, shade] of colours.stone.entries()) {
    canvas.fillStyle = shade;
    canvas.beginPath();
    for (let corner = 0; corner < 7; corner += 1) {
      const angle = (corner / 7) * TURN;
      const reach = radius * (0.82 + 0.2 * Math.sin(seed + corner * 2.1)) * (at === 0 ? 1 : 0.68);
      canvas.lineTo(Math.cos(angle) * reach - at * radius * 0.14, Math.sin(angle) * reach - at * radius * 0.18);
    }
    canvas.closePath();
    canvas.fill();
  }
}

export function drawChest(canvas: Canvas, colours: Colours, isOpen: boolean): void {
  if (!isOpen) {
    // Buried: a cross in the sand.
    canvas.strokeStyle = colours.gold;
    canvas.lineWidth = 8;
    canvas.lineCap = "round";
    canvas.beginPath();
    for (const side of [-1, 1]) {
      canvas.moveTo(-16, side * -16);
      canvas.lineTo(16, side * 16);
    }
    canvas.stroke();
    return;
  }
  shadow(canvas, colours, 30);
  canvas.fillStyle = colours.wood[0];
  canvas.fillRect(-30, -22, 60, 44);
  canvas.fillStyle = colours.gold;
  oval(canvas, 0, -6, 22, 11);
  canvas.fill();
  canvas.fillStyle = colours.wood[1];
  canvas.fillRect(-30, -32, 60, 13);
  canvas.fillRect(-30, 2, 60, 20);
  canvas.fillStyle = colours.gold;
  canvas.fillRect(-5, 2, 10, 12);
}

/** The marker of a clue. */
export function drawBeacon(canvas: Canvas, colours: Colours, nowMs: number): void {
  canvas.strokeStyle = colours.gold;
  for (let ring = 0; ring < 3; ring += 1) {
    const share = ((nowMs / 1_800 + ring / 3) % 1 + 1) % 1;
    canvas.globalAlpha = (1 - share) * 0.8;
    canvas.lineWidth = 7;
    disc(canvas, 0, 0, 34 + share * 130);
    canvas.stroke();
  }
  canvas.globalAlpha = 1;
  shadow(canvas, colours, 30);
  canvas.fillStyle = colours.gold;
  canvas.beginPath();
  for (let point = 0; point < 10; point += 1) {
    const angle = (point / 10) * TURN - Math.PI / 2;
    const reach = point % 2 === 0 ? 40 : 17;
    canvas.lineTo(Math.cos(angle) * reach, Math.sin(angle) * reach);
  }
  canvas.closePath();
  canvas.fill();
  canvas.strokeStyle = colours.plate;
  canvas.lineWidth = 5;
  canvas.lineJoin = "round";
  canvas.stroke();
}
