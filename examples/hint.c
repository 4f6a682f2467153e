/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A program that asks for its children to be spread over the machine, and says whether somebody
 * listens.
 *
 *	cc -I include -o hint examples/hint.c && ./hint
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <usher_hint.h>

int main(void)
{
	int result = usher_hint(USHER_HINT_SET, USHER_HINT_FORK_SPREAD | USHER_HINT_WAKE_HOLD, 0);
	int i;

	if (result < 0)
		printf("no hints: %s (scx_usher does not run?)\n", strerror(errno));
	else
		printf("hints in force: %#x\n", result & ~USHER_HINT_OK);
	for (i = 0; i < 4; i++)
		if (fork() == 0) {
			result = usher_hint(USHER_HINT_GET, 0, 0);
			printf("a child inherited %#x\n", result < 0 ? 0 : result & ~USHER_HINT_OK);
			return 0;
		}
	while (wait(NULL) > 0)
		;
	return 0;
}
