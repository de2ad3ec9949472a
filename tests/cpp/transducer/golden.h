// Results that other implementations or a calculation of their own have given.
#pragma once

#include <vector>

#include "cases.h"

namespace warpalign::test {

struct Golden {
  TransducerCase input;
  double loss;
  double sum_of_gradient = -1;  // sum of |gradient| by all logits; -1: not known
  // Rows of the gradient: node, then what each column gets.
  std::vector<std::pair<int, std::vector<double>>> rows = {};
  double tolerance = 1e-12;
};

// Graves's RNN-T on a table of 2 x 3 x 5, as torchaudio's and warp-transducer's tests have it.
inline const std::vector<double> kTableA = {.1, .6, .1, .1, .1, .1, .1, .6, .1, .1, .1, .1, .2, .8, .1,  //
                                            .1, .6, .1, .1, .1, .1, .1, .2, .1, .1, .7, .1, .2, .1, .1};

// warp-transducer's big_test, (2, 4, 3, 3).
inline const std::vector<double> kBigTest = {
    0.06535690384862791, 0.7875301411923206,   0.08159176605666074,  0.5297155426466327,  0.7506749639230854,
    0.7541348379087998,  0.6097641124736383,   0.8681404965673826,   0.6225318186056529,  0.6685222872103057,
    0.8580392805336061,  0.16453892311765583,  0.989779515236694,    0.944298460961015,   0.6031678586829663,
    0.9467833543605416,  0.666202507295747,    0.28688179752461884,  0.09418426230195986, 0.3666735970751962,
    0.736168049462793,   0.1666804425271342,   0.7141542198635192,   0.3993997272216727,  0.5359823524146038,
    0.29182076440286386, 0.6126422611507932,   0.3242405528768486,   0.8007644367291621,  0.5241057606558068,
    0.779194617063042,   0.18331417220174862,  0.113745182072432,    0.24022162381327106, 0.3394695622533106,
    0.1341595066017014,  0.5055615569388828,   0.051597282072282646, 0.6402903936686337,  0.43073311517251,
    0.8294731834714112,  0.1774668847323424,   0.3207001991262245,   0.04288308912457006, 0.30280282975568984,
    0.6751777088333762,  0.569537369330242,    0.5584738347504452,   0.08313242153985256, 0.06016544344162322,
    0.10795752845152584, 0.7486153608562472,   0.943918041459349,    0.4863558118797222,  0.4181986264486809,
    0.6524078485043804,  0.024242983423721887, 0.13458171554507403,  0.3663418070512402,  0.2958297395361563,
    0.9236695822497084,  0.6899291482654177,   0.7418981733448822,   0.25000547599982104, 0.6034295486281007,
    0.9872887878887768,  0.5926057265215715,   0.8846724004467684,   0.5434495396894328,  0.6607698886038497,
    0.3771277082495921,  0.3580209022231813};

// Rows of table A for the given frames and number of states.
inline std::vector<double> frames_of_a(const std::vector<int>& frames, int states) {
  std::vector<double> rows;
  for (const int t : frames) {
    rows.insert(rows.end(), kTableA.begin() + t * 15, kTableA.begin() + t * 15 + states * 5);
  }
  return rows;
}

// (4, 4, 3): am[t] + lm[u], of k2's tests.
inline std::vector<double> sum_of_am_and_lm() {
  const double am[4][3] = {{0, 1, 2}, {0, 0, 0}, {0, 2, 4}, {0, 3, 3}};
  const double lm[4][3] = {{0, 0, 1}, {0, 1, 1}, {1, 0, 1}, {2, 2, 0}};
  std::vector<double> rows;
  for (const auto& frame : am) {
    for (const auto& state : lm) {
      for (int k = 0; k < 3; ++k) rows.push_back(frame[k] + state[k]);
    }
  }
  return rows;
}

inline std::vector<Golden> golden_results() {
  using reference::Transducer;
  std::vector<Golden> all;
  const auto rnnt = [](int frames, int labels, std::vector<int> targets, int blank) {
    Transducer p;
    p.frames = frames;
    p.labels = labels;
    p.targets = std::move(targets);
    p.blank = blank;
    return p;
  };
  const auto add = [&](const char* name, const Transducer& p, std::vector<double> rows, double loss,
                       double sum = -1) {
    all.push_back({{name, p, std::move(rows)}, loss, sum});
  };
  const auto add_pattern = [&](const char* name, const Transducer& p, double loss, double sum,
                               double tolerance = 2e-12) {
    all.push_back({pattern_case(name, p), loss, sum, {}, tolerance});
  };

  const Transducer a = rnnt(2, 5, {1, 2}, 0);
  add("a", a, kTableA, 4.495666773770732);
  all.back().rows = {{0, {-.13116686, -.3999268, .17703122, .17703122, .17703122}},
                     {5, {-.6925882, .16871117, .18645468, .16871117, .16871117}}};
  Transducer clamped = a;
  clamped.clamp = .1;
  add("a_clamped", clamped, kTableA, 4.495666773770732);
  all.back().rows = {{0, {-.1, -.1, .1, .1, .1}}, {5, {-.1, .1, .1, .1, .1}}};
  add("a_blank_last", rnnt(2, 5, {1, 2}, 4), kTableA, 5.095666773770732);
  add("a_one_frame", rnnt(1, 5, {1, 2}, 0), frames_of_a({0}, 3), 4.274244594423859);
  add("a_one_node", rnnt(1, 5, {}, 0), frames_of_a({0}, 1), 1.7314291957733714);
  add("a_three_frames", rnnt(3, 5, {1, 2}, 0), frames_of_a({0, 1, 0}, 3), 5.736725042810161);
  add("big_test_0", rnnt(4, 3, {1, 2}, 0), {kBigTest.begin(), kBigTest.begin() + 36}, 4.280652859089074);
  add("big_test_1", rnnt(4, 3, {1, 1}, 0), {kBigTest.begin() + 36, kBigTest.end()}, 3.938436982250359);
  add("am_plus_lm", rnnt(4, 3, {0, 1, 0}, 2), sum_of_am_and_lm(), 7.504013356021814);

  // Multi-blank, arXiv 2211.03541.
  const auto multi_blank = [&](Transducer p, std::vector<int> durations, std::vector<int> ids, double sigma) {
    p.durations = std::move(durations);
    p.big_blank_columns = std::move(ids);
    p.sigma = sigma;
    return p;
  };
  const Transducer uniform = rnnt(3, 5, {0}, 4);
  add("multi_blank_zeros", multi_blank(uniform, {2}, {3}, 0), std::vector<double>(30), 3.302257433807);
  all.back().rows = {{0, {-.27826087, .2, .2, -.0173913, -.10434783}}};
  add("multi_blank_zeros_sigma", multi_blank(uniform, {2}, {3}, .05), std::vector<double>(30),
      3.458639133015);
  all.back().rows = {{0, {-.27918871, .2, .2, -.01878307, -.10202822}}};
  const Transducer five = rnnt(5, 6, {1, 2}, 5);
  add_pattern("multi_blank_sigma", multi_blank(five, {2, 4}, {4, 3}, .05), 6.130807916630, 5.8495939993);
  add_pattern("multi_blank", multi_blank(five, {2, 4}, {4, 3}, 0), 5.906419350568, 5.8632923249);
  add_pattern("pattern_blank_last", rnnt(5, 4, {1, 2}, 3), 6.883348431804, 8.4945065679);
  add_pattern("multi_blank_of_three", multi_blank(rnnt(8, 12, {1, 2, 3}, 11), {2, 4, 8}, {10, 9, 8}, .1),
              8.826298395694, 7.0934416824);

  // TDT, arXiv 2304.06795.
  Transducer tdt = rnnt(3, 4, {0}, 3);
  tdt.tdt = true;
  tdt.durations = {0, 1, 2};
  tdt.sigma = .05;
  add("tdt_zeros", tdt, std::vector<double>(42), 4.155738825070);
  all.back().rows = {{0, {-.64962798, .25, .25, .14962798, .26725832, -.16792617, -.09933215}}};
  tdt.frames = 5;
  tdt.targets = {1, 2};
  add_pattern("tdt", tdt, 6.025570248721, 7.4697495434);

  // Penalties.
  const Transducer six = rnnt(6, 5, {1, 2, 1}, 0);
  const auto changed = [](Transducer p, auto&& change) {
    change(p);
    return p;
  };
  add_pattern("six", six, 13.116505378391, 12.7282019423);
  add_pattern("delay_.01", changed(six, [](auto& p) { p.delay = .01; }), 13.098762181338, 12.7341434784);
  add_pattern("delay_.1", changed(six, [](auto& p) { p.delay = .1; }), 12.895947857038, 12.8204660232);
  add_pattern("fastemit_.01", changed(six, [](auto& p) { p.fastemit = .01; }), 13.116505378391,
              12.7654781832);
  add_pattern("fastemit_1", changed(six, [](auto& p) { p.fastemit = 1; }), 13.116505378391, 16.7057932113);
  const auto eos = [](auto& p) { p.eos = 4, p.eos_penalty = .1; };
  const auto star = [](auto& p) { p.star = 3, p.star_penalty = .5; };
  add_pattern("eos", changed(rnnt(6, 5, {1, 2, 4}, 0), eos), 13.472892402395, 13.2516151073);
  add_pattern("star", changed(rnnt(6, 5, {1, 3, 2}, 0), star), 7.780726364410, 5.9403406376);
  add_pattern("star_last", changed(rnnt(6, 5, {1, 2, 3}, 0), star), 6.455237082621, 3.3618021444);
  Transducer penalties = changed(changed(rnnt(6, 5, {1, 3, 4}, 0), eos), star);
  penalties.delay = .01;
  add_pattern("all_penalties", penalties, 8.282190287939, 6.3720239570);
  TransducerCase one_frame = pattern_case("six_one_frame", six);
  one_frame.problem.frames = 1;
  one_frame.rows.resize(20);
  all.push_back({one_frame, 7.131883933326, 6.4158280295, {}, 2e-12});
  const std::vector<double> rows = pattern(120);
  TransducerCase one_state{"six_one_state", rnnt(6, 5, {}, 0), {}};
  for (int t = 0; t < 6; ++t) {
    one_state.rows.insert(one_state.rows.end(), rows.begin() + t * 20, rows.begin() + t * 20 + 5);
  }
  all.push_back({one_state, 12.782788594822, 10.4268761186, {}, 2e-12});
  add_pattern("six_repeated", rnnt(6, 5, {1, 1, 1}, 0), 12.667277570896, 12.3307613923);
  return all;
}

}  // namespace warpalign::test
