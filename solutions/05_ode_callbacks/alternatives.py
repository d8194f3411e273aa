"""Other right solutions of chapter 5, and wrong ones that no Mistake covers."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch

from underhood.ode import BETA1, BETA2, GAMMA, Q_MAX, Q_MIN, A, C, E, R

# ------------------------------------------------------------------------------------------------------------- rk_step


def step_by_loops(f, t, y, h, k1=None):
    slopes = [list(map(float, f(t, y) if k1 is None else k1))]
    state = [float(v) for v in y]
    for i in range(1, 7):
        state = [float(y[n]) + h * sum(A[i, j] * slopes[j][n] for j in range(i)) for n in range(len(y))]
        slopes.append([float(v) for v in f(t + C[i] * h, np.array(state))])
    return np.array(state), np.array(slopes)


def step_by_einsum(f, t, y, h, k1=None):
    first = np.asarray(f(t, y)) if k1 is None else k1
    K = np.concatenate([first[None], np.zeros((6, y.size))])
    for i in range(1, 6):
        K[i] = f(t + h * C[i], y + np.einsum("j,jn->n", h * A[i], K[:6]))
    y_new = y + np.einsum("j,jn->n", h * A[6], K[:6])
    K[6] = f(t + h, y_new)
    return y_new, K


def step_by_heun(f, t, y, h, k1=None):
    first = f(t, y) if k1 is None else k1
    y_new = y + h / 2 * (first + f(t + h, y + h * first))
    return y_new, np.array([first] * 6 + [f(t + h, y_new)])


# ------------------------------------------------------------------------------------------------------------ err_norm


def norm_by_loops(K, h, y, y_new, atol, rtol):
    total = 0.0
    for n in range(len(y)):
        error = h * sum(E[i] * K[i, n] for i in range(7))
        total += (error / (atol + rtol * max(abs(y[n]), abs(y_new[n])))) ** 2
    return math.sqrt(total / len(y))


def norm_by_linalg(K, h, y, y_new, atol, rtol):
    larger = np.abs(np.stack([y, y_new])).max(axis=0)
    return np.linalg.norm(E @ (h * K) / (atol + rtol * larger)) / np.sqrt(y.size)


def norm_with_half_the_relative_tolerance(K, h, y, y_new, atol, rtol):
    return norm_by_linalg(K, h, y, y_new, atol, rtol / 2)


# ---------------------------------------------------------------------------------------------------------- pi_control


def control_by_factors(err, err_old, h):
    if err > 1.0:
        return False, h * max(GAMMA * err**-BETA1, Q_MIN), err_old
    if err == 0.0:
        return True, h * Q_MAX, 1e-4
    factor = GAMMA * err_old**BETA2 / err**BETA1
    return True, h * min(Q_MAX, max(Q_MIN, factor)), 1e-4 if err < 1e-4 else err


def control_by_clip(err, err_old, h):
    accept = bool(err <= 1)
    q = err**BETA1 * (err_old**-BETA2 if accept else 1.0) / GAMMA
    return accept, float(h / np.clip(q, 1 / Q_MAX, 1 / Q_MIN)), float(max(err, 1e-4)) if accept else err_old


def control_by_halves(err, err_old, h):
    return (True, 2 * h, err) if err <= 1 else (False, h / 2, err_old)


# ------------------------------------------------------------------------------------------------------------- init_dt


def start_by_lists(f, t0, y0, atol, rtol, dt_max=math.inf):
    tolerated = [atol + rtol * abs(v) for v in y0]

    def rms(values):
        return math.sqrt(sum((v / s) ** 2 for v, s in zip(values, tolerated, strict=True)) / len(tolerated))

    f0 = f(t0, y0)
    d0, d1 = rms(y0), rms(f0)
    small = d0 < 1e-5 or d1 < 1e-5
    dt0 = min(dt_max, 1e-6 if small else d0 / d1 / 100)
    f1 = f(t0 + dt0, y0 + dt0 * np.asarray(f0))
    d2 = rms(np.asarray(f1) - f0) / dt0
    if max(d1, d2) > 1e-15:
        dt1 = (0.01 / max(d1, d2)) ** 0.2
    else:
        dt1 = max(1e-6, dt0 / 1000)
    return min(100 * dt0, dt1, dt_max)


def start_by_norms(f, t0, y0, atol, rtol, dt_max=math.inf):
    weights = 1 / ((atol + rtol * np.abs(y0)) * np.sqrt(y0.size))
    slope = np.array(f(t0, y0), dtype=float)
    d0, d1 = np.linalg.norm(weights * y0), np.linalg.norm(weights * slope)
    dt0 = min(1e-6, dt_max) if min(d0, d1) < 1e-5 else min(0.01 * d0 / d1, dt_max)
    d2 = np.linalg.norm(weights * (f(t0 + dt0, y0 + dt0 * slope) - slope)) / dt0
    worst = max(d1, d2)
    dt1 = np.exp(-(math.log(100) + np.log(worst)) / 5) if worst > 1e-15 else max(1e-6, dt0 * 1e-3)
    return float(np.min([100 * dt0, dt1, dt_max]))


def start_small(f, t0, y0, atol, rtol, dt_max=math.inf):
    return min(1e-6, dt_max)


# --------------------------------------------------------------------------------------------------------------- dense


def between_by_polyval(theta, y, h, K, derivative=False):
    def one(th):
        result = np.zeros(len(y))
        for i in range(7):
            p = np.array([*R[i, ::-1], 0.0])
            result += np.polyval(np.polyder(p) if derivative else p, th) * K[i]
        return result if derivative else y + h * result

    return one(theta) if np.ndim(theta) == 0 else np.array([one(th) for th in theta]).reshape(len(theta), len(y))


def between_by_horner(theta, y, h, K, derivative=False):
    th = np.expand_dims(np.asarray(theta, dtype=float), -1)
    r1, r2, r3, r4 = (R.T @ K)[:, None] if np.ndim(theta) else R.T @ K
    if derivative:
        return r1 + th * (2 * r2 + th * (3 * r3 + th * 4 * r4))
    return y + h * th * (r1 + th * (r2 + th * (r3 + th * r4)))


def between_by_the_first_slope(theta, y, h, K, derivative=False):
    th = np.expand_dims(np.asarray(theta, dtype=float), -1)
    return K[0] + 0 * th if derivative else y + h * th * K[0]


# -------------------------------------------------------------------------------------------------------- bracket_root


def root_by_illinois(g, a, b, side="left"):
    """Regula falsi that cannot get stuck, finished by bisection."""
    ga, gb = g(a), g(b)
    if math.isnan(ga) or math.isnan(gb):
        raise ValueError("nan")
    if gb == 0:
        return b
    if (ga < 0) == (gb < 0):
        raise ValueError("no sign change")
    wa, wb = ga, gb
    for turn in range(10_000):
        if math.nextafter(a, b) == b:
            return a if side == "left" else b
        c = (a * wb - b * wa) / (wb - wa) if turn < 60 and wb != wa else a + (b - a) / 2
        if not min(a, b) < c < max(a, b):
            c = a + (b - a) / 2
        if c in (a, b):
            c = math.nextafter(a, b)
        gc = g(c)
        if math.isnan(gc):
            raise ValueError("nan")
        if gc == 0:
            return c
        if (gc < 0) == (ga < 0):
            a, wa, wb = c, gc, wb / 2
        else:
            b, wb, wa = c, gc, wa / 2
    raise RuntimeError("no end")


def root_by_recursion(g, a, b, side="left"):
    sa, sb = (np.sign(g(x)) for x in (a, b))
    if np.isnan(sa + sb):
        raise ValueError("nan")
    if sb == 0:
        return b
    if sa == sb:
        raise ValueError("no sign change")

    def shrink(a, b):
        middle = (a + b) / 2
        if middle == a or middle == b:
            return {"left": a, "right": b}[side]
        sign = np.sign(g(middle))
        if np.isnan(sign):
            raise ValueError("nan")
        if sign == 0:
            return middle
        return shrink(middle, b) if sign == sa else shrink(a, middle)

    return shrink(a, b)


def root_by_one_secant(g, a, b, side="left"):
    ga, gb = g(a), g(b)
    if not ga * gb <= 0:
        raise ValueError("no sign change")
    return a - ga * (b - a) / (gb - ga)


# -------------------------------------------------------------------------------------------------------------- detect


def crossings_by_loops(G, prev_sign, directions):
    signs = list(prev_sign)
    for j in range(1, len(G)):
        hits = []
        for i, value in enumerate(G[j]):
            sign = int(value > 0) - int(value < 0)
            if signs[i] < 0 <= sign and directions[i] != -1 or signs[i] > 0 >= sign and directions[i] != 1:
                hits.append(i)
            signs[i] = sign
        if hits:
            return j, hits
    return None, []


def crossings_by_products(G, prev_sign, directions):
    signs = np.sign(np.concatenate([np.asarray(prev_sign, dtype=float)[None], G[1:]]))
    crossed = (signs[:-1] != 0) & (signs[:-1] * signs[1:] <= 0)
    way = -signs[:-1]  # +1 where it rises
    allowed = crossed & ((np.asarray(directions) == 0) | (way == directions))
    rows = np.nonzero(allowed.any(axis=1))[0]
    if rows.size == 0:
        return None, np.empty(0, dtype=int)
    return rows[0] + 1, np.nonzero(allowed[rows[0]])[0]


def crossings_of_the_first_component(G, prev_sign, directions):
    j, hits = crossings_by_loops(G[:, :1], prev_sign[:1], directions[:1])
    return j, hits


# --------------------------------------------------------------------------------------------------------- first_event


def first_by_sorting(candidates, tdir=1):
    time = sorted(tdir * t for _, t in candidates)[0] * tdir
    return min(i for i, t in candidates if t == time), time


def first_by_loop(candidates, tdir=1):
    best = candidates[0]
    for i, t in candidates[1:]:
        ahead = t < best[1] if tdir > 0 else t > best[1]
        if ahead or (t == best[1] and i < best[0]):
            best = (i, t)
    return best


def first_with_index_zero(candidates, tdir=1):
    return 0, tdir * min(tdir * t for _, t in candidates)


# --------------------------------------------------------------------------------------------------------- apply_event


def event_by_branches(f, t, y, affect, index, save_positions=(True, True)):
    saved = []
    if save_positions[0]:
        saved.append((t, np.array(y)))
    new = np.array(y)
    affect(new, index)
    if save_positions[1]:
        saved.append((t, np.array(new)))
    return new, np.asarray(f(t, new)), saved


def event_on_two_copies(f, t, y, affect, index, save_positions=(True, True)):
    before, after = y.copy(), y.copy()
    affect(after, index)
    pairs = zip((before, after), save_positions, strict=True)
    return after, f(t, after.copy()), [(t, state.copy()) for state, wanted in pairs if wanted]


def event_without_slope(f, t, y, affect, index, save_positions=(True, True)):
    new, _, saved = event_by_branches(f, t, y, affect, index, save_positions)
    return new, np.zeros_like(new), saved


# ------------------------------------------------------------------------------------------------------------- extinct


def extinct_by_where(f, y, alive, index):
    here = np.arange(len(y)) == index
    mask = np.where(here, 0.0, alive)

    def rate(t, u):
        return np.where(mask > 0, f(t, np.where(mask > 0, u, 0.0)), 0.0)

    return np.where(here, 0.0, y), mask, rate


def _masked(f, dead, t, u):
    u = np.array(u)
    u[dead] = 0.0
    du = np.array(f(t, u))
    du[dead] = 0.0
    return du


def extinct_by_indices(f, y, alive, index):
    y_new, mask = np.array(y), np.array(alive)
    y_new[index] = mask[index] = 0.0
    return y_new, mask, functools.partial(_masked, f, np.flatnonzero(mask == 0))


def extinct_twice_as_fast(f, y, alive, index):
    y_new, mask, rate = extinct_by_indices(f, y, alive, index)
    return y_new, mask, lambda t, u: 2 * rate(t, u)


# -------------------------------------------------------------------------------------------------------------- bounce


def bounce_by_maximum(h, v, e, g=9.81, tol=1e-6):
    up = abs(v) * e
    contact = up < tol
    return 0.0, up * (not contact), contact, math.inf if contact else 0.5 * (2 * up / g)


def bounce_by_energy(h, v, e, g=9.81, tol=1e-6):
    up = math.sqrt(e * e * v * v)
    if up >= tol:
        return 0.0, up, False, up / g
    return 0.0, 0.0, True, float("inf")


def bounce_with_constant_loss(h, v, e, g=9.81, tol=1e-6):
    up = -v - (1 - e)
    return (0.0, up, False, up / g) if up > tol else (0.0, 0.0, True, math.inf)


# ----------------------------------------------------------------------------------------------------- event_time_grad


def gradient_by_one_backward(g, f, t, y, S, g_theta=0.0):
    both = torch.tensor(np.concatenate([[t], y]), requires_grad=True)
    g(both[0], both[1:]).backward()
    g_t, g_y = both.grad[0].item(), both.grad[1:].numpy()
    along = g_t + float(np.dot(g_y, f(t, y)))
    if along == 0:
        raise ValueError("g stands still")
    return -(np.einsum("n,np->p", g_y, S) + np.asarray(g_theta)) / along


def gradient_by_dual_direction(g, f, t, y, S, g_theta=0.0):
    """One backward pass for each direction, along the solution and along each parameter."""

    def along(dt, dy):
        step = torch.zeros((), dtype=torch.float64, requires_grad=True)
        time = torch.tensor(float(t), dtype=torch.float64) + step * dt
        state = torch.tensor(np.asarray(y, dtype=float)) + step * torch.tensor(np.asarray(dy, dtype=float))
        value = g(time, state)
        return torch.autograd.grad(value, step)[0].item() if value.requires_grad else 0.0

    rate = along(1.0, f(t, y))
    if rate == 0:
        raise ValueError("no crossing")
    changes = np.array([along(0.0, S[:, p]) for p in range(S.shape[1])])
    return -(changes + g_theta) / rate


def gradient_of_the_first_parameter(g, f, t, y, S, g_theta=0.0):
    full = gradient_by_one_backward(g, f, t, y, S, g_theta)
    return np.full_like(full, full[0])


RIGHT = {
    "rk_step": {"loops": step_by_loops, "einsum": step_by_einsum},
    "err_norm": {"loops": norm_by_loops, "numpy.linalg": norm_by_linalg},
    "pi_control": {"factors": control_by_factors, "clip": control_by_clip},
    "init_dt": {"lists": start_by_lists, "norms": start_by_norms},
    "dense": {"polyval": between_by_polyval, "Horner": between_by_horner},
    "bracket_root": {"regula falsi": root_by_illinois, "recursion": root_by_recursion},
    "detect": {"loops": crossings_by_loops, "products of signs": crossings_by_products},
    "first_event": {"sorting": first_by_sorting, "a loop": first_by_loop},
    "apply_event": {"branches": event_by_branches, "two copies": event_on_two_copies},
    "extinct": {"where": extinct_by_where, "indices": extinct_by_indices},
    "bounce": {"absolute speed": bounce_by_maximum, "energy": bounce_by_energy},
    "event_time_grad": {"one backward": gradient_by_one_backward, "directions": gradient_by_dual_direction},
}

WRONG = {
    "rk_step": {"Heun's method": step_by_heun},
    "err_norm": {"half the relative tolerance": norm_with_half_the_relative_tolerance},
    "pi_control": {"doubling and halving": control_by_halves},
    "init_dt": {"always 1e-6": start_small},
    "dense": {"the first slope alone": between_by_the_first_slope},
    "bracket_root": {"one secant": root_by_one_secant},
    "detect": {"the first component alone": crossings_of_the_first_component},
    "first_event": {"always index 0": first_with_index_zero},
    "apply_event": {"no slope": event_without_slope},
    "extinct": {"a right-hand side twice as fast": extinct_twice_as_fast},
    "bounce": {"a constant loss": bounce_with_constant_loss},
    "event_time_grad": {"one parameter for all": gradient_of_the_first_parameter},
}
