// Settings of a command line (--set) that change no answer, so that none is silent.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"

namespace shardline {

struct ServiceAnswer;
struct ServiceQuestion;

/// One warning per setting without which each of these plans takes as long, needs as much memory and serves
/// its users as well: a system file's number that fits of measurements stand in for, a key that the plans do
/// not use. `without` reads the study again with all settings but one; it may throw UserError, which is an
/// effect. `named`: the texts of plans that were named, which another study may read as other plans. Where
/// there are none, a search found the plans, and keys that say which it looks at (gpus, batch, options, ...)
/// are not asked after. Located in the setting.
std::vector<Diagnostic> idle_settings(const Study& study, std::span<const Plan> plans,
                                      const std::vector<std::string>& settings,
                                      std::span<const std::string> named,
                                      const std::function<Study(const std::vector<std::string>&)>& without);

/// Adds warnings of settings of which `to` has none yet, as unread_parameters() has of some.
void add_idle_settings(std::vector<Diagnostic>& to, std::vector<Diagnostic> idle);

/// The same of a study whose answer was computed without the setting: `same` says whether it is the same.
/// `calibrated`: its prices are fits.
std::vector<Diagnostic> idle_settings(
    const std::vector<std::string>& settings, bool calibrated,
    const std::function<bool(const std::vector<std::string>& others)>& same);

/// The same of requests that are played on a plan: of its servers steps of few and of many requests and of a
/// prompt take as long, caches have as much room, requests are as long, and drafts accepted as often. What
/// tells another plan (of a pool on another system) is not looked at. `same_plans`: whether the texts of
/// plans that were named are the same plans of another study; where there is none, the plan was searched for,
/// and keys that say among which are not asked after. Throws as serve_requests() does.
std::vector<Diagnostic> idle_in_play(const Study& study, const ServiceQuestion& question,
                                     const std::vector<std::string>& settings,
                                     const std::function<Study(const std::vector<std::string>&)>& without,
                                     const std::function<bool(const Study&)>& same_plans);

/// One note per knob of a play that nothing reads (idle_knobs() of knob_tables.hpp): of a server of a pair,
/// or without another that it needs. Given for both pools at once (`plan --slo`) a knob may be read in one.
std::vector<Diagnostic> idle_knob_notes(const ServiceAnswer& answer);

/// Whether a setting only says which plans a search looks at, and what it makes of them.
bool says_plans(const std::string& setting);

}  // namespace shardline
