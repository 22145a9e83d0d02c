// Who may change something. The token stays in this tab.

import { ask } from "./dom.js";

const key = "wardrop-token";

const headers = () => (sessionStorage.getItem(key) ? { Authorization: `Bearer ${sessionStorage.getItem(key)}` } : {});

// access tells whether a token is asked for, and whether ours is right.
export const access = () => ask("/v1/access", { headers: headers() });

// show tries a token; true when it is right.
export async function show(token) {
  sessionStorage.setItem(key, token);
  const a = await access();
  if (!a.authorised) sessionStorage.removeItem(key);
  return a.authorised;
}

export const forget = () => sessionStorage.removeItem(key);

export const override = (o) => ask("/v1/overrides", { method: "PUT", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify({ by: "dashboard", ...o }) });

export const release = (name) => ask(`/v1/overrides/${name.split("/").map(encodeURIComponent).join("/")}`, { method: "DELETE", headers: headers() });
