/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The system call of placement hints, from a program's side: every answer that include/usher_hint.h
 * promises. Runs in a guest under scx_usher, as root. Says what failed and ends with 1, or says "as
 * promised".
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <usher_hint.h>

#define CROWD 10000

static int failures;

/* What a call answers: the flags in force, or -errno. */
static int answer(int result)
{
	return result < 0 ? -errno : result & USHER_HINT_OK ? result & ~USHER_HINT_OK : -1000;
}

static void expect(const char *what, int found, int wanted)
{
	if (found == wanted)
		return;
	printf("%s: %d instead of %d\n", what, found, wanted);
	failures++;
}

static int raw(unsigned long op, unsigned long flags, unsigned long pid, unsigned long extra)
{
	return answer(prctl(USHER_PR_HINT, op, flags, pid, extra));
}

static void *thread(void *unused)
{
	(void)unused;
	expect("a thread inherits", answer(usher_hint(USHER_HINT_GET, 0, 0)), 9);
	expect("a thread has its own", answer(usher_hint(USHER_HINT_SET, 2, 0)), 2);
	return NULL;
}

/* In a child, which says by its exit code what it found. */
static int in_child(int (*f)(void))
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(f());
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int get(void)
{
	return answer(usher_hint(USHER_HINT_GET, 0, 0));
}

static int grandchild(void)
{
	return in_child(get);
}

static int as_nobody(void)
{
	pid_t sibling;
	int bad = 0;

	if (setgid(65534) || setuid(65534))
		return 100;
	bad |= answer(usher_hint(USHER_HINT_SET, 2, 1)) != -EPERM;
	bad |= (answer(usher_hint(USHER_HINT_GET, 0, 1)) < 0) << 1;
	sibling = fork();
	if (sibling == 0) {
		pause();
		_exit(0);
	}
	bad |= (answer(usher_hint(USHER_HINT_SET, 2, sibling)) != 2) << 2;
	kill(sibling, 9);
	waitpid(sibling, NULL, 0);
	return bad;
}

/* Ten thousand tasks, a hundred at a time, that all change their hints. */
static void crowd(void)
{
	int born = 0, status, bad = 0;

	while (born < CROWD) {
		int i;

		for (i = 0; i < 100; i++, born++)
			if (fork() == 0)
				_exit(answer(usher_hint(USHER_HINT_SET, 1 + born % 2, 0)) != 1 + born % 2);
		for (i = 0; i < 100; i++)
			bad += wait(&status) < 0 || status != 0;
	}
	expect("of a crowd, those not served", bad, 0);
}

int main(int argc, char **argv)
{
	pthread_t other;

	if (argc > 1 && !strcmp(argv[1], "after-exec"))
		return get();
	expect("no hints at first", get(), 0);
	expect("an unknown flag", raw(USHER_HINT_SET, 16, 0, 0), -EINVAL);
	expect("a high flag", raw(USHER_HINT_SET, 1UL << 32 | 1, 0, 0), -EINVAL);
	expect("both about births", raw(USHER_HINT_SET, 3, 0, 0), -EINVAL);
	expect("both about wakeups", raw(USHER_HINT_SET, 12, 0, 0), -EINVAL);
	expect("one argument too many", raw(USHER_HINT_SET, 1, 0, 1), -EINVAL);
	expect("an unknown op", raw(0, 1, 0, 0), -EINVAL);
	expect("get with flags", raw(USHER_HINT_GET, 1, 0, 0), -EINVAL);
	expect("no such thread", raw(USHER_HINT_SET, 1, 99999999, 0), -ESRCH);
	expect("a negative thread", raw(USHER_HINT_SET, 1, -5UL, 0), -ESRCH);
	expect("still none", get(), 0);
	expect("another option is none of ours", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), 1);

	expect("set", answer(usher_hint(USHER_HINT_SET, 9, 0)), 9);
	expect("kept", get(), 9);
	expect("a child inherits", in_child(get), 9);
	expect("its child too", in_child(grandchild), 9);
	if (pthread_create(&other, NULL, thread, NULL) == 0)
		pthread_join(other, NULL);
	expect("a thread's are its own", get(), 9);
	if (fork() == 0)
		execl("/proc/self/exe", argv[0], "after-exec", NULL);
	else {
		int status;

		wait(&status);
		expect("exec keeps them", WEXITSTATUS(status), 9);
	}
	expect("rights: another user's, looking, one's own", in_child(as_nobody), 0);
	crowd();
	expect("taken back", answer(usher_hint(USHER_HINT_SET, 0, 0)), 0);
	expect("gone", in_child(get), 0);
	if (!failures)
		puts("as promised");
	return failures > 0;
}
