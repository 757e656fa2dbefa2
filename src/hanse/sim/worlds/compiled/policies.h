/* Functions that make the central policies. A further policy: its function here, its line in table.c. */
#ifndef HANSE_WORLD_POLICIES_H
#define HANSE_WORLD_POLICIES_H

#include "world.h"

/* policy/hashing.py hash_numbers, of two values */
uint64_t world_hash(uint64_t seed, uint64_t one, uint64_t other);

/* policies.c */
bool make_independent(policy_t *p, const world_t *w, const settings_t *settings);
bool make_greedy(policy_t *p, const world_t *w, const settings_t *settings);
bool make_best_fit(policy_t *p, const world_t *w, const settings_t *settings);
bool make_least_loaded(policy_t *p, const world_t *w, const settings_t *settings);
bool make_power_of_two(policy_t *p, const world_t *w, const settings_t *settings);

/* finish.c */
bool make_earliest_finish(policy_t *p, const world_t *w, const settings_t *settings);

/* oracle.c */
bool make_oracle(policy_t *p, const world_t *w, const settings_t *settings);

#endif
