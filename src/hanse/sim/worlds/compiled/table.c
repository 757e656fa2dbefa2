/* The central policies by name. */
#include "policies.h"

const policy_entry_t POLICIES[] = {
    {"independent", make_independent},
    {"greedy", make_greedy},
    {"best-fit", make_best_fit},
    {"least-loaded", make_least_loaded},
    {"power-of-two", make_power_of_two},
    {"earliest-finish", make_earliest_finish},
    {"oracle", make_oracle},
};
const int64_t POLICY_COUNT = sizeof POLICIES / sizeof *POLICIES;
