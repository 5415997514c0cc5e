#!/usr/bin/env node
// A plugin of two roles: a veth whose addresses an IPAM plugin gives; with `label` the alias of an interface that another plugin made.
// FAULT is empty, or names how it is wrong.
"use strict";
const { spawnSync } = require("child_process");
const { createHash } = require("crypto");
const fs = require("fs");

const FAULT = "";
const VERSIONS = ["0.4.0", "1.0.0", "1.1.0"];
const env = process.env;
let version = "1.1.0";

class Refused extends Error {
  constructor(code, msg) {
    super(msg);
    this.error = { code, msg };
  }
}

function run(words, { inside = false, lax = false } = {}) {
  if (inside) words = ["nsenter", `--net=${env.CNI_NETNS}`, ...words];
  const done = spawnSync(words[0], words.slice(1), { encoding: "utf8" });
  if (done.status !== 0 && !lax) throw new Refused(100, `cannot run ${words.join(" ")}: ${done.stderr}`);
  return done.status === 0 ? done.stdout : "";
}
const ip = (words, options) => run(["ip", ...words], options);
const links = (options) => JSON.parse(ip(["-json", "-details", "address"], { lax: true, ...options }) || "[]");
const link = (name, options) => links(options).find((one) => one.ifname === name);

function delegate(config, verb) {
  const kind = config.ipam?.type;
  if (typeof kind !== "string" || !kind || kind.includes("/")) throw new Refused(7, "ipam.type must name a plugin");
  const path = env.CNI_PATH.split(":").map((folder) => `${folder}/${kind}`).find((path) => fs.existsSync(path));
  if (!path) throw new Refused(verb === "STATUS" ? 50 : 101, `no plugin ${kind} in CNI_PATH`);
  const done = spawnSync(path, [], { input: config.text, encoding: "utf8", env: { ...env, CNI_COMMAND: verb }, stdio: ["pipe", "pipe", "inherit"] });
  const answer = parse(done.stdout || "{}");
  if (done.status !== 0) throw new Refused(answer.code ?? 102, answer.msg ?? `${kind} failed`);
  return answer;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Refused(6, "that is no JSON");
  }
}

const alias = (config) => `link.js ${config.name} ${env.CNI_CONTAINERID} ${env.CNI_IFNAME}`;
const hostEnd = (config) => "lj" + createHash("sha256").update(alias(config)).digest("hex").slice(0, 12);

const veth = {
  ADD(config) {
    if (link(env.CNI_IFNAME, { inside: true })) throw new Refused(103, `${env.CNI_IFNAME} is there already`);
    const host = hostEnd(config);
    try {
      const given = delegate(config, "ADD");
      if (!given.ips?.length) throw new Refused(102, "the IPAM plugin gave no address");
      ip(["link", "add", host, "type", "veth", "peer", "name", env.CNI_IFNAME, "netns", env.CNI_NETNS]);
      ip(["link", "set", host, "alias", alias(config), "up"]);
      ip(["link", "set", env.CNI_IFNAME, "up"], { inside: true });
      for (const one of given.ips) {
        const [bare] = one.address.split("/");
        const bits = bare.includes(":") ? 128 : 32;
        ip(["address", "add", one.address, "dev", env.CNI_IFNAME, "nodad"], { inside: true });
        if (one.gateway) ip(["address", "add", `${one.gateway}/${bits}`, "dev", host, "nodad"]);
        ip(["route", "add", bare, "dev", host]);
      }
      const hop = (dst) => given.ips.find((one) => one.gateway && one.address.includes(":") === dst.includes(":"))?.gateway;
      for (const { dst, gw = hop(dst), mtu, advmss, priority, table } of given.routes ?? []) {
        const more = Object.entries({ via: gw, mtu, advmss, metric: priority, table }).filter(([, value]) => value !== undefined);
        ip(["route", "add", dst, "dev", env.CNI_IFNAME, ...more.flat().map(String)], { inside: true });
      }
      const before = config.prevResult ?? {};
      const count = before.interfaces?.length ?? 0;
      const own = [
        { name: host, mac: link(host).address },
        { name: env.CNI_IFNAME, mac: link(env.CNI_IFNAME, { inside: true }).address, sandbox: env.CNI_NETNS },
      ];
      return {
        ...before, cniVersion: version, interfaces: [...(before.interfaces ?? []), ...own],
        ips: [...(before.ips ?? []), ...given.ips.map((one) => ({ ...one, interface: count + 1 }))],
        routes: [...(before.routes ?? []), ...(given.routes ?? [])], dns: before.dns ?? given.dns ?? {},
      };
    } catch (error) {
      ip(["link", "delete", host], { lax: true });
      try {
        delegate(config, "DEL");
      } catch {}
      throw error;
    }
  },
  CHECK(config) {
    if (FAULT !== "asks-no-delegate") delegate(config, "CHECK");
    const there = link(env.CNI_IFNAME, { inside: true });
    if (!there?.flags.includes("UP") || !link(hostEnd(config))?.flags.includes("UP")) throw new Refused(104, `${env.CNI_IFNAME} is not as it was`);
    const own = config.prevResult.interfaces.findIndex((one) => one.sandbox && one.name === env.CNI_IFNAME);
    if (config.prevResult.interfaces[own]?.mac !== there.address) throw new Refused(105, "the hardware address is another");
    const has = there.addr_info.map((one) => `${one.local}/${one.prefixlen}`);
    for (const one of config.prevResult.ips ?? []) {
      if (one.interface === own && !has.includes(one.address)) throw new Refused(106, `${one.address} is missing`);
    }
    for (const { dst } of config.prevResult.routes ?? []) {
      const family = dst.includes(":") ? "-6" : "-4";
      if (!ip([family, "route", "show", "table", "all", dst], { inside: true })) throw new Refused(107, `the route to ${dst} is missing`);
    }
  },
  DEL(config) {
    if (FAULT === "stops-at-its-delegate") delegate(config, "DEL");
    ip(["link", "delete", hostEnd(config)], { lax: FAULT !== "wants-its-link" });
    if (FAULT !== "stops-at-its-delegate") delegate(config, "DEL");
  },
  GC(config) {
    const valid = (config["cni.dev/valid-attachments"] ?? []).map((one) => `${one.containerID} ${one.ifname}`);
    for (const { ifname, ifalias = "" } of links()) {
      const [kind, network, ...rest] = ifalias.split(" ");
      if (kind === "link.js" && network === config.name && !valid.includes(rest.join(" "))) ip(["link", "delete", ifname], { lax: true });
    }
    delegate(config, "GC");
  },
  STATUS: (config) => void delegate(config, "STATUS"),
};

const label = {
  ADD(config) {
    if (!config.prevResult) throw new Refused(7, "prevResult is missing");
    ip(["link", "set", env.CNI_IFNAME, "alias", config.label], { inside: true });
    const result = { ...config.prevResult, cniVersion: version };
    if (FAULT === "drops-devices") result.interfaces = result.interfaces?.map(({ socketPath, pciID, ...rest }) => rest);
    if (FAULT === "reports-a-route") result.routes = [...(result.routes ?? []), { dst: "203.0.113.0/24" }];
    return result;
  },
  CHECK(config) {
    if (link(env.CNI_IFNAME, { inside: true })?.ifalias !== config.label) throw new Refused(104, "the alias is another");
    const wanted = (config.prevResult.routes ?? []).length;
    const routes = JSON.parse(ip(["-json", "route"], { inside: true }) || "[]").filter((route) => route.protocol !== "kernel");
    if (FAULT === "wants-no-route-more" && routes.length > wanted) throw new Refused(107, "there are more routes than it knows");
  },
  DEL(config) {
    const lax = FAULT !== "wants-the-interface";
    if (env.CNI_NETNS && fs.existsSync(env.CNI_NETNS)) ip(["link", "set", env.CNI_IFNAME, "alias", ""], { inside: true, lax });
  },
  GC() {},
  STATUS() {},
};

const NEEDED = { ADD: ["CONTAINERID", "NETNS", "IFNAME"], CHECK: ["CONTAINERID", "NETNS", "IFNAME"], DEL: ["CONTAINERID", "IFNAME"], GC: [], STATUS: [] };

function main() {
  const text = fs.readFileSync(0, "utf8");
  const config = parse(text);
  if (config === null || typeof config !== "object" || Array.isArray(config)) throw new Refused(6, "the config is no JSON object");
  version = config.cniVersion ?? "0.1.0";
  const verb = env.CNI_COMMAND;
  if (verb === "VERSION") return { cniVersion: version, supportedVersions: VERSIONS };
  const needed = NEEDED[verb]?.map((name) => `CNI_${name}`);
  if (!needed) throw new Refused(4, `CNI_COMMAND ${verb} is unknown`);
  if ("ipam" in config) needed.push("CNI_PATH");
  const missing = needed.filter((name) => !env[name]);
  if (missing.length) throw new Refused(4, `${missing.join(", ")} must be set`);
  if (!VERSIONS.includes(version)) throw new Refused(1, `cniVersion ${version} is none of ${VERSIONS.join(", ")}`);
  const isName = (text) => typeof text === "string" && /^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(text);
  if (!isName(config.name)) throw new Refused(7, "name is no network name");
  if (needed.includes("CNI_CONTAINERID") && !isName(env.CNI_CONTAINERID)) throw new Refused(4, "CNI_CONTAINERID is no container ID");
  if (needed.includes("CNI_IFNAME") && !/^(?!\.\.?$)[^/:\s]{1,15}$/.test(env.CNI_IFNAME)) throw new Refused(4, "CNI_IFNAME is no interface name");
  if (needed.includes("CNI_NETNS") && !fs.existsSync(env.CNI_NETNS)) throw new Refused(3, `CNI_NETNS ${env.CNI_NETNS}: no such file`);
  if (verb === "CHECK" && !config.prevResult) throw new Refused(7, "CHECK needs prevResult");
  return ("label" in config ? label : veth)[verb](Object.assign(config, { text }));
}

let answer, status = 0;
try {
  answer = main();
} catch (error) {
  status = 1;
  answer = { cniVersion: version, ...(error.error ?? { code: 5, msg: String(error) }) };
}
if (answer) fs.writeSync(1, JSON.stringify(answer) + "\n");
process.exitCode = status;
