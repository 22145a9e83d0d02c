"""Solves views by other solvers and compares their objectives and times with wardrop's.

Usage: compare.py WARDROP DIR [--large FILE]

Writes 32 random fleets into DIR with `wardrop solve --generate`: single-model and
multi-model, hard caps that bind, demand beyond capacity with three priorities;
models that ask different work, tokens and slots of engines that limit them, and
weigh their time differently; engines with distances of their own.
Ipopt (MUMPS, tolerance 1e-8) solves the problem as docs/architecture.md states
it, built here from the file alone; HiGHS and Clp solve piecewise-linear versions
of it. With --large the same solvers are timed on one large fleet.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time

import casadi
import highspy
import numpy as np
import yaml

CHURN = 1.5 * 0.070
REFUSE = [200.0, 20.0, 2.0]  # critical, standard, batch
PRIORITIES = ["critical", "standard", "batch"]


def seconds(text):
    m = re.fullmatch(r"(?:(\d+)m(?!s))?(?:([\d.]+)(s|ms|µs|us))?", str(text))
    if not m:
        sys.exit(f"{text}: no duration")
    unit = {"s": 1, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, None: 0}[m[3]]
    return 60 * int(m[1] or 0) + float(m[2] or 0) * unit


class Problem:
    """Sources (cluster, model), groups (model, region), links (group, engine).

    Where engines have distances of their own, each is a group by itself."""

    def __init__(self, path):
        with open(path) as f:
            view = yaml.load(f, Loader=yaml.CSafeLoader)
        p = [e["profile"] for e in view["engines"]]
        self.t0 = np.array([seconds(x["t0"]) for x in p])
        self.umax = np.array([float(x["u_max"]) for x in p])
        batch = np.array([float(x["batch"]) for x in p])
        self.usat = 1 / (self.t0 / batch + 1 / self.umax)
        self.cap = np.array([float(x["kappa"]) for x in p]) * self.usat
        self.n = np.maximum(1, np.sqrt(2 * (batch + 1)) - 1)
        self.asks(view)
        self.far(view)
        groups, self.link_group, self.link_engine, link_model = {}, [], [], []
        for e, engine in enumerate(view["engines"]):
            for m in engine["models"]:
                g = groups.setdefault((m, self.place[e]), len(groups))
                self.link_group.append(g)
                self.link_engine.append(e)
                link_model.append(m)
        self.link_work = np.array([self.model[m]["work"] for m in link_model])
        self.link_cost = np.array([self.own[e][m] for e, m in zip(self.link_engine, link_model)])
        self.set_limits(view, link_model)
        by_model = {}
        for (m, r), g in groups.items():
            by_model.setdefault(m, []).append((g, r))
        sources = {}
        for d in view["demand"]:
            rate = sources.setdefault((d["cluster"], d["model"]), [0.0, 0.0, 0.0])
            rate[PRIORITIES.index(d.get("priority", "standard"))] += float(d["rate"])
        self.demand = np.array(list(sources.values()))
        arcs = [(s, g, self.distance[c][r]) for s, (c, m) in enumerate(sources) for g, r in by_model[m]]
        self.arc_source, self.arc_group = (np.array([a[i] for a in arcs]) for i in (0, 1))
        self.arc_cost = np.array([a[2] for a in arcs])
        self.link_group, self.link_engine = np.array(self.link_group), np.array(self.link_engine)
        self.groups, self.engines, self.sources = len(groups), len(p), len(sources)
        self.refuse = self.values(view, sources)

    def asks(self, view):
        """What the models' requests ask, and what their time is worth, alone and in the mean of an engine's models."""
        plain = {"work": 1.0, "token_seconds": 0.0, "slot_seconds": 0.0}
        listed = {m["name"]: m for m in view.get("models", [])}
        self.model, self.first, self.decode, self.own = {}, [], [], []
        for engine in view["engines"]:
            for m in engine["models"]:
                x = {**plain, **listed.get(m, {})}
                x["first"], x["decode"] = (x["worth"][k] for k in ("first_token", "decode")) if "worth" in x else (1.0, 1.0)
                self.model[m] = x
        for e, engine in enumerate(view["engines"]):
            models = [self.model[m] for m in engine["models"]]
            first, decode = (sum(m[k] for m in models) / len(models) for k in ("first", "decode"))
            part = seconds(engine["profile"].get("first_token", "0s"))
            self.first.append((first, part))
            self.decode.append(decode)
            self.own.append({
                m: self.model[m]["work"] * ((self.model[m]["first"] - first) * part + (self.model[m]["decode"] - decode) * (self.t0[e] - part))
                for m in engine["models"]
            })
        part, self.knee = np.array([p for _, p in self.first]), np.array([f for f, _ in self.first])
        self.worth = self.knee * part + np.array(self.decode) * (self.t0 - part)  # of T0

    def far(self, view):
        """Places, and how far they are."""
        self.distance = {c["name"]: {r: seconds(d) for r, d in c["distances"].items()} for c in view["clusters"]}
        self.place = [e["region"] for e in view["engines"]]
        for c in view["clusters"]:
            for e, engine in enumerate(view["engines"]):
                if engine["name"] in c.get("engine_distances", {}):
                    self.place[e] = engine["name"]
                    self.distance[c["name"]][engine["name"]] = seconds(c["engine_distances"][engine["name"]])

    def set_limits(self, view, link_model):
        """The engines' limits on tokens and slots: rows of (limit, links, what each holds)."""
        self.limits, links = [], {}
        for i, e in enumerate(self.link_engine):
            links.setdefault(e, []).append(i)
        self.full = self.cap.copy()  # the cap on the load, with limits that are no more than that
        for e, engine in enumerate(view["engines"]):
            for key, asked in (("tokens", "token_seconds"), ("slots", "slot_seconds")):
                limit = float(engine["profile"].get(key, 0))
                holds = [float(self.model[link_model[i]][asked]) for i in links[e]]
                if limit > 0 and max(holds) > 0:
                    self.limits.append((limit, links[e], holds))
                    rates = [h / self.model[link_model[i]]["work"] for h, i in zip(holds, links[e])]
                    if min(rates) == max(rates):
                        self.full[e] = min(self.full[e], limit / rates[0])

    def values(self, view, sources):
        """What refusing costs: beyond the dearest admitted request of the component."""
        parent = {}

        def find(x):
            while parent.setdefault(x, x) != x:
                x = parent[x]
            return x

        for e in view["engines"]:
            for m in e["models"]:
                parent[find(m)] = find(e["models"][0])
        slope = self.slope(self.full)
        base = {}
        for e, engine in enumerate(view["engines"]):
            far = max(self.distance[c["name"]][self.place[e]] for c in view["clusters"])
            root = find(engine["models"][0])
            dearest = max(self.model[m]["work"] * slope[e] + self.own[e][m] for m in engine["models"])
            base[root] = max(base.get(root, 0), far + dearest)
        return np.array([[base[find(m)] + CHURN + v for v in REFUSE] for _, m in sources])

    def phi(self, u, power=np.power):
        rho = u / self.usat
        return u * self.worth / (1 - u / self.umax) + self.knee * power(rho, self.n + 1) / (1 - rho)

    def slope(self, u):
        r = u / self.usat
        return self.worth / (1 - u / self.umax) ** 2 + self.knee * ((self.n + 1) * r**self.n / (1 - r) + r ** (self.n + 1) / (1 - r) ** 2) / self.usat

    def rows(self, index, count):
        """A 0/1 matrix that sums a vector by index."""
        return casadi.DM(casadi.Sparsity.triplet(count, len(index), [int(i) for i in index], list(range(len(index)))), 1)

    def ipopt(self, tolerance=1e-8):
        x = casadi.MX.sym("x", len(self.arc_cost))
        y = casadi.MX.sym("y", len(self.link_group))
        s = casadi.MX.sym("s", self.sources * 3)
        u = casadi.MX.sym("u", self.engines)
        rho = u / casadi.DM(self.usat)
        knee = casadi.DM(self.knee) * rho ** casadi.DM(self.n + 1) / (1 - rho)
        phi = casadi.sum1(u * casadi.DM(self.worth) / (1 - u / casadi.DM(self.umax)) + knee) + casadi.dot(casadi.DM(self.link_cost), y)
        f = casadi.dot(casadi.DM(self.arc_cost), x) + phi + casadi.dot(casadi.DM(self.refuse.ravel()), s)
        shed = self.rows(np.repeat(np.arange(self.sources), 3), self.sources)
        g = casadi.vertcat(
            self.rows(self.arc_source, self.sources) @ x + shed @ s - casadi.DM(self.demand.sum(axis=1)),
            self.rows(self.arc_group, self.groups) @ x - self.rows(self.link_group, self.groups) @ y,
            self.rows(self.link_engine, self.engines) @ (casadi.DM(self.link_work) * y) - u,
            *[casadi.dot(casadi.DM(np.array(holds) / limit), y[[int(i) for i in links]]) for limit, links, holds in self.limits],
        )
        low = np.concatenate([np.zeros(g.numel() - len(self.limits)), np.full(len(self.limits), -np.inf)])
        high = np.concatenate([np.zeros(g.numel() - len(self.limits)), np.ones(len(self.limits))])
        solver = casadi.nlpsol("s", "ipopt", {"x": casadi.vertcat(x, y, s, u), "f": f, "g": g}, {
            "print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.tol": tolerance, "ipopt.max_iter": 1000,
            "ipopt.bound_relax_factor": 0,  # else it reports less than the optimum, for bounds a little wider
        })
        start_u = 0.5 * self.cap
        lower = np.zeros(x.numel() + y.numel() + s.numel() + u.numel())
        upper = np.concatenate([np.full(x.numel() + y.numel(), np.inf), self.demand.ravel(), self.cap])
        guess = np.concatenate([np.full(x.numel(), 1.0), start_u[self.link_engine], 0.1 * self.demand.ravel(), start_u])
        begin = time.perf_counter()
        r = solver(x0=guess, lbx=lower, ubx=upper, lbg=low, ubg=high)
        took = time.perf_counter() - begin
        if not solver.stats()["success"]:
            sys.exit(f"ipopt: {solver.stats()['return_status']}")
        return float(r["f"]), took

    def linear(self, segments):
        """The piecewise-linear version, as arrays of a linear program."""
        cut = np.linspace(0, 1, segments + 1)[None, :] * self.cap[:, None]
        value = np.stack([self.phi(cut[:, k]) for k in range(segments + 1)], axis=1)
        width, slope = np.diff(cut, axis=1), np.diff(value, axis=1) / np.diff(cut, axis=1)
        nx, ny, ns, nu = len(self.arc_cost), len(self.link_group), self.sources * 3, self.engines * segments
        cost = np.concatenate([self.arc_cost, self.link_cost, self.refuse.ravel(), slope.ravel()])
        upper = np.concatenate([np.full(nx + ny, np.inf), self.demand.ravel(), width.ravel()])
        right = np.concatenate([self.demand.sum(axis=1), np.zeros(self.groups + self.engines), np.ones(len(self.limits))])
        held = [(k, i, h / limit) for k, (limit, links, holds) in enumerate(self.limits) for i, h in zip(links, holds)]
        first = self.sources + self.groups + self.engines
        i = np.concatenate([
            self.arc_source, self.sources + self.arc_group, self.sources + self.link_group, self.sources + self.groups + self.link_engine,
            np.repeat(np.arange(self.sources), 3), self.sources + self.groups + np.repeat(np.arange(self.engines), segments),
            np.array([first + k for k, _, _ in held], dtype=int),
        ])
        j = np.concatenate([
            np.arange(nx), np.arange(nx), nx + np.arange(ny), nx + np.arange(ny), nx + ny + np.arange(ns), nx + ny + ns + np.arange(nu),
            np.array([nx + i for _, i, _ in held], dtype=int),
        ])
        v = np.concatenate([np.ones(2 * nx), -np.ones(ny), self.link_work, np.ones(ns), -np.ones(nu), np.array([h for _, _, h in held])])
        return cost, upper, right, i, j, v

    def lp(self, segments):
        cost, upper, right, i, j, v = self.linear(segments)
        order = np.lexsort((i, j))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(cost), len(right)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(len(cost)), upper
        lp.row_upper_ = right
        lp.row_lower_ = np.where(np.arange(len(right)) < len(right) - len(self.limits), right, -np.inf)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.searchsorted(j[order], np.arange(len(cost) + 1)).astype(np.int32)
        lp.a_matrix_.index_, lp.a_matrix_.value_ = i[order].astype(np.int32), v[order]
        return lp

    def highs(self, segments, method="simplex"):
        h = highspy.Highs()
        h.setOptionValue("output_flag", False)
        h.setOptionValue("solver", method)
        h.passModel(self.lp(segments))
        begin = time.perf_counter()
        h.run()
        return h.getObjectiveValue(), time.perf_counter() - begin

    def clp(self, segments, directory):
        path = os.path.join(directory, "model.mps")
        h = highspy.Highs()
        h.setOptionValue("output_flag", False)
        h.passModel(self.lp(segments))
        h.writeModel(path)
        out = subprocess.run(["clp", path, "-dualsimplex"], capture_output=True, text=True, check=True).stdout
        m = re.search(r"Optimal objective\s+([\d.e+-]+).*?time ([\d.]+)", out, re.S) or re.search(r"Optimal - objective value ([\d.e+-]+)", out)
        took = re.search(r"(?:Total time|time) .*?([\d.]+)", out)
        return float(m[1]), float(took[1]) if took else math.nan


def wardrop(binary, *args):
    return subprocess.run([binary, "solve", *args], capture_output=True, text=True, check=True).stdout


def compare(binary, directory):
    worst, worst_linear, count = 0.0, 0.0, 0
    for clusters, engines, models in [(3, 12, 1), (10, 100, 1), (10, 100, 4), (20, 200, 5)]:
        for util, multi, more in [
            (0.5, 0, ""), (0.95, 0, ""), (0.95, 0.3, ""), (1.25, 0, ""), (1.25, 0.3, ""), (0.8, 1, ""),
            (0.9, 0.5, ",asks=0.7"), (1.2, 0.5, ",asks=0.7,noise=0.1"),
        ]:
            if models == 1:
                multi = 0
            count += 1
            spec = f"clusters={clusters},engines={engines},models={models},util={util},multi={multi},seed={count}{more}"
            path = os.path.join(directory, f"fleet-{count}.yaml")
            with open(path, "w") as f:
                f.write(wardrop(binary, "--generate", spec))
            own = json.loads(wardrop(binary, path, "--json", "--exact"))
            problem = Problem(path)
            ipopt, _ = problem.ipopt()
            highs, _ = problem.highs(256)
            difference = (own["objective"] - ipopt) / ipopt
            worst, worst_linear = max(worst, abs(difference)), max(worst_linear, abs(highs / ipopt - 1))
            print(f"{spec:80s} wardrop {own['objective']:.9f}  ipopt {ipopt:.9f}  {difference:+.1e}  gap {own['gap']:.1e}  "
                  f"HiGHS, 256 segments {highs / ipopt - 1:+.1e}", flush=True)
    print(f"{count} fleets: at most {worst:.1e} from Ipopt; piecewise-linear HiGHS at most {worst_linear:.1e}")
    return worst


def race(binary, path, directory):
    own = json.loads(wardrop(binary, path, "--bench", "7"))
    print(f"wardrop      {own['solve_seconds']:8.3f} s  gap {own['gap']:.1e}  {own['passes']:.0f} passes  tick {own['tick_seconds']:.3f} s", flush=True)
    problem = Problem(path)
    exact, took = problem.ipopt()
    print(f"Ipopt 1e-8   {took:8.3f} s  {took / own['solve_seconds']:.0f} times as long", flush=True)
    for name, solve in [("Clp", lambda: problem.clp(64, directory)), ("HiGHS simplex", lambda: problem.highs(64)), ("HiGHS ipm", lambda: problem.highs(64, "ipm"))]:
        value, took = solve()
        print(f"{name}, 64 segments  {took:8.3f} s  {took / own['solve_seconds']:.0f} times as long  objective off by {value / exact - 1:.1e}", flush=True)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("wardrop")
    a.add_argument("directory")
    a.add_argument("--large")
    a = a.parse_args()
    os.makedirs(a.directory, exist_ok=True)
    worst = compare(a.wardrop, a.directory)
    if a.large:
        race(a.wardrop, a.large, a.directory)
    sys.exit(worst > 1e-7)


main()
