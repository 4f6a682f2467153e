/* SPDX-License-Identifier: GPL-2.0-only */
/* The core under the model checker. */
#define USHER_PREFIX real
#include "../../../core/tests/model.c"
