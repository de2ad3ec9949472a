#include "recurrent/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/philox.h"

namespace warpalign::detail::recurrent::reference {
namespace {

using Vector = std::vector<double>;

// What one step of one row keeps for the way back.
struct Step {
  int t = 0;
  bool reset = false;
  Vector x, h_before, c_before;
  Vector norm_x, norm_h, norm_c;                   // normalised, before gamma
  double scale_x = 1, scale_h = 1, scale_c = 1;    // 1 / sqrt(var + eps)
  Vector z, gate, cell, squashed, keep_h, keep_c;  // cell: c~; squashed: u(c~), or u(LN(c~))
};

// One row's way through one layer and direction.
struct Walk {
  std::vector<Step> steps;  // in the direction's order
  Vector h, c;              // at the end
};

class Network {
 public:
  Network(const Lstm& problem, const Inputs& inputs) : p_(problem), in_(inputs) {}

  Outputs forward() {
    const int T = p_.steps, B = p_.batch, H = p_.hidden, P = p_.output(), D = p_.directions();
    Outputs out;
    out.y.assign(static_cast<std::size_t>(T) * B * D * P, 0);
    out.h_n.resize(static_cast<std::size_t>(p_.cells()) * B * P);
    out.c_n.resize(static_cast<std::size_t>(p_.cells()) * B * H);
    out.h_all.assign(static_cast<std::size_t>(p_.cells()) * T * B * P, 0);
    out.c_all.assign(static_cast<std::size_t>(p_.cells()) * T * B * H, 0);
    walks_.assign(p_.cells(), std::vector<Walk>(B));
    for (int b = 0; b < B; ++b) {
      std::vector<Vector> x(T);
      for (int t = 0; t < T; ++t) x[t] = part(in_.x, t * B + b, p_.input);
      for (int layer = 0; layer < p_.layers; ++layer) {
        std::vector<Vector> y(T, Vector(D * P, 0.0));
        for (int d = 0; d < D; ++d) {
          const int cell = layer * D + d;
          Walk& walk = walks_[cell][b];
          walk = walk_row(layer, d, b, x, out);
          std::copy(walk.h.begin(), walk.h.end(), out.h_n.begin() + (cell * B + b) * P);
          std::copy(walk.c.begin(), walk.c.end(), out.c_n.begin() + (cell * B + b) * H);
          for (int t = 0; t < T; ++t) {
            for (int j = 0; j < P; ++j) y[t][d * P + j] = out.h_all[((cell * T + t) * B + b) * P + j];
          }
        }
        for (int t = 0; t < T; ++t) {
          if (layer == p_.layers - 1)
            std::copy(y[t].begin(), y[t].end(), out.y.begin() + (t * B + b) * D * P);
          for (int n = 0; n < D * P; ++n) y[t][n] *= dropout_factor(layer, n / P, t, b, n % P);
        }
        x = y;
      }
    }
    out.on_rail = on_rail_;
    return out;
  }

  Gradients backward(const Outputs& incoming) {
    forward();
    const int T = p_.steps, B = p_.batch, H = p_.hidden, P = p_.output(), D = p_.directions();
    Gradients g;
    g.x.assign(in_.x.size(), 0);
    g.h0.assign(static_cast<std::size_t>(p_.cells()) * B * P, 0);
    g.c0.assign(static_cast<std::size_t>(p_.cells()) * B * H, 0);
    for (const Weights& w : in_.weights) g.weights.push_back(zeros_like(w));
    for (int b = 0; b < B; ++b) {
      std::vector<Vector> dy(T, Vector(D * P, 0.0));
      for (int t = 0; t < T && !incoming.y.empty(); ++t) dy[t] = part(incoming.y, t * B + b, D * P);
      for (int layer = p_.layers - 1; layer >= 0; --layer) {
        std::vector<Vector> dx(T, Vector(p_.input_of(layer), 0.0));
        for (int d = 0; d < D; ++d) walk_back(layer, d, b, dy, incoming, dx, g);
        dy = dx;
        for (int t = 0; t < T && layer > 0; ++t) {
          for (int n = 0; n < D * P; ++n) dy[t][n] *= dropout_factor(layer - 1, n / P, t, b, n % P);
        }
      }
      for (int t = 0; t < T; ++t) std::copy(dy[t].begin(), dy[t].end(), g.x.begin() + (t * B + b) * p_.input);
    }
    return g;
  }

 private:
  static Vector part(const Vector& all, int index, int size) {
    return {all.begin() + static_cast<std::ptrdiff_t>(index) * size,
            all.begin() + static_cast<std::ptrdiff_t>(index + 1) * size};
  }
  static Vector part_or_zero(const Vector& all, int index, int size) {
    return all.empty() ? Vector(size, 0.0) : part(all, index, size);
  }
  static Weights zeros_like(const Weights& w) {
    const auto zeros = [](const Vector& v) { return Vector(v.size(), 0.0); };
    return {zeros(w.ih),    zeros(w.hh),    zeros(w.bias),    zeros(w.hr),
            zeros(w.ln_ih), zeros(w.ln_hh), zeros(w.ln_cell), zeros(w.ln_cell_bias)};
  }

  // Whether the word of (t, b, unit) is below p 2^32.
  [[nodiscard]] bool drawn(double p, int t, int b, int unit, int layer, int d, int kind) const {
    const PhiloxWords words =
        philox({{static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(b),
                 static_cast<std::uint32_t>(unit / 4), static_cast<std::uint32_t>(layer * 8 + d * 4 + kind)}},
               p_.seed);
    return words.word[unit % 4] < p * 4294967296.0;
  }
  [[nodiscard]] double dropout_factor(int layer, int d, int t, int b, int unit) const {
    if (!p_.training || p_.dropout == 0 || layer == p_.layers - 1) return 1;
    return drawn(p_.dropout, t, b, unit, layer, d, 3) ? 0 : 1 / (1 - p_.dropout);
  }
  // The dropout factor of entry (row, column) of R.
  [[nodiscard]] double weight_factor(int layer, int d, int row, int column) const {
    if (!p_.training || p_.weight_dropout == 0) return 1;
    return drawn(p_.weight_dropout, row, 0, column, layer, d, 2) ? 0 : 1 / (1 - p_.weight_dropout);
  }
  [[nodiscard]] double zoneout_factor(double p, int t, int b, int unit, int layer, int d, int kind) const {
    if (p == 0 || !p_.training) return p;
    return drawn(p, t, b, unit, layer, d, kind) ? 1 : 0;
  }

  [[nodiscard]] double gate_of(double z) const {
    return p_.hard ? std::min(1.0, std::max(0.0, p_.slope * z + p_.offset)) : 1 / (1 + std::exp(-z));
  }
  [[nodiscard]] double squash(double z) const {
    return p_.hard ? std::min(1.0, std::max(-1.0, z)) : std::tanh(z);
  }
  // Derivatives by z.
  [[nodiscard]] double gate_slope(double z) const {
    if (!p_.hard) return gate_of(z) * (1 - gate_of(z));
    const double v = p_.slope * z + p_.offset;
    return v > 0 && v < 1 ? p_.slope : 0;
  }
  [[nodiscard]] double squash_slope(double z) const {
    if (!p_.hard) return 1 - std::tanh(z) * std::tanh(z);
    return z > -1 && z < 1 ? 1 : 0;
  }

  // v becomes (v - mean) / sqrt(var + eps); returns the factor.
  double normalise(Vector& v) const {
    double mean = 0, variance = 0;
    for (const double a : v) mean += a / static_cast<double>(v.size());
    for (const double a : v) variance += (a - mean) * (a - mean) / static_cast<double>(v.size());
    const double scale = 1 / std::sqrt(variance + p_.eps);
    for (double& a : v) a = (a - mean) * scale;
    return scale;
  }
  // The gradient with respect to v, from that with respect to its normalised form n.
  static Vector normalise_back(const Vector& n, double scale, const Vector& dn) {
    const auto size = static_cast<double>(n.size());
    double mean = 0, along = 0;
    for (std::size_t k = 0; k < n.size(); ++k) mean += dn[k] / size, along += dn[k] * n[k] / size;
    Vector dv(n.size());
    for (std::size_t k = 0; k < n.size(); ++k) dv[k] = scale * (dn[k] - mean - n[k] * along);
    return dv;
  }

  Walk walk_row(int layer, int d, int b, const std::vector<Vector>& x, Outputs& out) {
    const int T = p_.steps, B = p_.batch, H = p_.hidden, P = p_.output(), I = p_.input_of(layer);
    const int cell = layer * p_.directions() + d;
    const Weights& w = in_.weights[cell];
    const int length = p_.lengths.empty() ? T : p_.lengths[b];
    const Vector h0 = part_or_zero(in_.h0, cell * B + b, P), c0 = part_or_zero(in_.c0, cell * B + b, H);
    Walk walk{{}, h0, c0};
    for (int n = 0; n < length; ++n) {
      Step s;
      s.t = d == 0 ? n : length - 1 - n;
      s.reset = !p_.resets.empty() && p_.resets[s.t * B + b] != 0;
      if (s.reset) walk.h = h0, walk.c = c0;
      s.x = x[s.t], s.h_before = walk.h, s.c_before = walk.c;
      s.norm_x.assign(4 * H, 0), s.norm_h.assign(4 * H, 0), s.z.assign(4 * H, 0);
      for (int r = 0; r < 4 * H; ++r) {
        for (int k = 0; k < I; ++k) s.norm_x[r] += w.ih[r * I + k] * s.x[k];
        for (int k = 0; k < P; ++k) {
          s.norm_h[r] += w.hh[r * P + k] * weight_factor(layer, d, r, k) * s.h_before[k];
        }
      }
      if (p_.layer_norm) s.scale_x = normalise(s.norm_x), s.scale_h = normalise(s.norm_h);
      for (int r = 0; r < 4 * H; ++r) {
        s.z[r] =
            p_.layer_norm ? w.ln_ih[r] * s.norm_x[r] + w.ln_hh[r] * s.norm_h[r] : s.norm_x[r] + s.norm_h[r];
        if (!w.bias.empty()) s.z[r] += w.bias[r];
        const bool squashes = r / H == 2;
        s.gate.push_back(squashes ? squash(s.z[r]) : gate_of(s.z[r]));
        if (p_.hard) on_rail_ += (squashes ? squash_slope(s.z[r]) : gate_slope(s.z[r])) == 0 ? 1 : 0;
      }
      for (int j = 0; j < H; ++j) s.cell.push_back(s.gate[H + j] * walk.c[j] + s.gate[j] * s.gate[2 * H + j]);
      s.norm_c = s.cell;
      if (p_.layer_norm) s.scale_c = normalise(s.norm_c);
      for (int j = 0; j < H; ++j) {
        s.squashed.push_back(squash(cell_input(s, w, j)));
        if (p_.hard) on_rail_ += squash_slope(cell_input(s, w, j)) == 0 ? 1 : 0;
      }
      for (int j = 0; j < P; ++j) {
        double h = 0;
        if (p_.projection == 0) h = s.gate[3 * H + j] * s.squashed[j];
        for (int k = 0; k < H && p_.projection > 0; ++k) {
          h += w.hr[j * H + k] * s.gate[3 * H + k] * s.squashed[k];
        }
        s.keep_h.push_back(zoneout_factor(p_.zoneout_hidden, s.t, b, j, layer, d, 0));
        walk.h[j] = s.keep_h[j] * walk.h[j] + (1 - s.keep_h[j]) * h;
        out.h_all[((cell * T + s.t) * B + b) * P + j] = walk.h[j];
      }
      for (int j = 0; j < H; ++j) {
        s.keep_c.push_back(zoneout_factor(p_.zoneout_cell, s.t, b, j, layer, d, 1));
        walk.c[j] = s.keep_c[j] * walk.c[j] + (1 - s.keep_c[j]) * s.cell[j];
        out.c_all[((cell * T + s.t) * B + b) * H + j] = walk.c[j];
      }
      walk.steps.push_back(s);
    }
    return walk;
  }
  // What u is applied to, on the way to h.
  [[nodiscard]] double cell_input(const Step& s, const Weights& w, int j) const {
    return p_.layer_norm ? w.ln_cell[j] * s.norm_c[j] + w.ln_cell_bias[j] : s.cell[j];
  }

  void walk_back(int layer, int d, int b, const std::vector<Vector>& dy, const Outputs& incoming,
                 std::vector<Vector>& dx, Gradients& g) {
    const int T = p_.steps, B = p_.batch, H = p_.hidden, P = p_.output(), I = p_.input_of(layer);
    const int cell = layer * p_.directions() + d;
    const Weights& w = in_.weights[cell];
    Weights& dw = g.weights[cell];
    Vector dh = part_or_zero(incoming.h_n, cell * B + b, P), dc = part_or_zero(incoming.c_n, cell * B + b, H);
    const std::vector<Step>& steps = walks_[cell][b].steps;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      const Step& s = *step;
      Vector dh_before(P, 0.0), dc_before(H, 0.0), dm(H, 0.0), dcell(H, 0.0), dz(4 * H);
      for (int j = 0; j < P; ++j) {
        dh[j] += dy[s.t][d * P + j];
        if (!incoming.h_all.empty()) dh[j] += incoming.h_all[((cell * T + s.t) * B + b) * P + j];
        dh_before[j] += s.keep_h[j] * dh[j];
        const double dnew = (1 - s.keep_h[j]) * dh[j];
        if (p_.projection == 0) dm[j] = dnew;
        for (int k = 0; k < H && p_.projection > 0; ++k) {
          dm[k] += w.hr[j * H + k] * dnew;
          dw.hr[j * H + k] += dnew * s.gate[3 * H + k] * s.squashed[k];
        }
      }
      for (int j = 0; j < H; ++j) {
        dz[3 * H + j] = dm[j] * s.squashed[j] * gate_slope(s.z[3 * H + j]);
        dcell[j] = dm[j] * s.gate[3 * H + j] * squash_slope(cell_input(s, w, j));
      }
      if (p_.layer_norm) {
        for (int j = 0; j < H; ++j) {
          dw.ln_cell[j] += dcell[j] * s.norm_c[j], dw.ln_cell_bias[j] += dcell[j];
          dcell[j] *= w.ln_cell[j];
        }
        dcell = normalise_back(s.norm_c, s.scale_c, dcell);
      }
      for (int j = 0; j < H; ++j) {
        if (!incoming.c_all.empty()) dc[j] += incoming.c_all[((cell * T + s.t) * B + b) * H + j];
        dc_before[j] += s.keep_c[j] * dc[j];
        dcell[j] += (1 - s.keep_c[j]) * dc[j];
        dz[j] = dcell[j] * s.gate[2 * H + j] * gate_slope(s.z[j]);
        dz[H + j] = dcell[j] * s.c_before[j] * gate_slope(s.z[H + j]);
        dz[2 * H + j] = dcell[j] * s.gate[j] * squash_slope(s.z[2 * H + j]);
        dc_before[j] += dcell[j] * s.gate[H + j];
      }
      Vector dzx = dz, dzh = dz;
      for (int r = 0; r < 4 * H; ++r) {
        if (!w.bias.empty()) dw.bias[r] += dz[r];
        if (!p_.layer_norm) continue;
        dw.ln_ih[r] += dz[r] * s.norm_x[r], dw.ln_hh[r] += dz[r] * s.norm_h[r];
        dzx[r] *= w.ln_ih[r], dzh[r] *= w.ln_hh[r];
      }
      if (p_.layer_norm) {
        dzx = normalise_back(s.norm_x, s.scale_x, dzx);
        dzh = normalise_back(s.norm_h, s.scale_h, dzh);
      }
      for (int r = 0; r < 4 * H; ++r) {
        for (int k = 0; k < I; ++k) {
          dw.ih[r * I + k] += dzx[r] * s.x[k];
          dx[s.t][k] += dzx[r] * w.ih[r * I + k];
        }
        for (int k = 0; k < P; ++k) {
          const double factor = weight_factor(layer, d, r, k);
          dw.hh[r * P + k] += dzh[r] * s.h_before[k] * factor;
          dh_before[k] += dzh[r] * w.hh[r * P + k] * factor;
        }
      }
      dh = dh_before, dc = dc_before;
      if (s.reset) hand_over(cell, b, dh, dc, g);
    }
    hand_over(cell, b, dh, dc, g);
  }
  // The gradients with respect to a state that was (h0, c0) go there, and become 0.
  void hand_over(int cell, int b, Vector& dh, Vector& dc, Gradients& g) const {
    for (std::size_t j = 0; j < dh.size(); ++j) g.h0[(cell * p_.batch + b) * dh.size() + j] += dh[j];
    for (std::size_t j = 0; j < dc.size(); ++j) g.c0[(cell * p_.batch + b) * dc.size() + j] += dc[j];
    dh.assign(dh.size(), 0), dc.assign(dc.size(), 0);
  }

  const Lstm& p_;
  const Inputs& in_;
  std::vector<std::vector<Walk>> walks_;  // of each cell, of each row
  int on_rail_ = 0;
};

}  // namespace

Outputs forward(const Lstm& problem, const Inputs& inputs) { return Network(problem, inputs).forward(); }

Gradients backward(const Lstm& problem, const Inputs& inputs, const Outputs& incoming) {
  return Network(problem, inputs).backward(incoming);
}

}  // namespace warpalign::detail::recurrent::reference
