/* SPDX-License-Identifier: GPL-2.0-only */
/* The core under the model checker, as it is: mutants are compiled with other prefixes. */
#define USHER_PREFIX real
#include "../../../core/tests/model.c"
