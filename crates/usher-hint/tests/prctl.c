/* SPDX-License-Identifier: GPL-2.0-only */
/* In place of the C library's prctl(): says what it was asked, and answers as scx_usher would. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define NOBODY 99 /* a pid */

int prctl(int option, ...)
{
	unsigned long argument[4];
	va_list list;
	int i;

	va_start(list, option);
	for (i = 0; i < 4; i++)
		argument[i] = va_arg(list, unsigned long);
	va_end(list);
	fprintf(stderr, "prctl %#x %lu %lu %lu %lu\n", option, argument[0], argument[1], argument[2], argument[3]);
	if (argument[2] == NOBODY) {
		errno = ESRCH;
		return -1;
	}
	return 0x100 | (argument[0] == 1 ? (int)argument[1] : 9);
}
