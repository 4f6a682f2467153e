/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The system call of placement hints, from a program's side: every answer that include/usher_hint.h
 * promises. Runs in a guest under scx_usher, as root. Says what failed and ends with 1, or says "as
 * promised".
 */
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <usher_hint.h>

#define CROWD 10000
#define STACK 16384
#define NOBODY 65534
#define CAP_NICE 23

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

/* What another user may do to a task of root, to look at one, and to a task of its own. */
static int as_nobody(void)
{
	pid_t sibling;
	int bad = 0;

	if (setgid(NOBODY) || setuid(NOBODY))
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

/* Another user who has CAP_SYS_NICE and nothing else may hint everybody's tasks; without it, none. */
static int as_nice(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = {
		{ .effective = 1u << CAP_NICE, .permitted = 1u << CAP_NICE },
	};
	pid_t parent = getppid();
	int bad = 0;

	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setuid(NOBODY) || syscall(SYS_capset, &head, caps))
		return 100;
	bad |= answer(usher_hint(USHER_HINT_SET, 5, parent)) != 5;
	caps[0].effective = 0;
	if (syscall(SYS_capset, &head, caps))
		return 100;
	bad |= (answer(usher_hint(USHER_HINT_SET, 9, parent)) != -EPERM) << 1;
	return bad;
}

/* Children that change the hints they inherited, a hundred at a time. */
static void children(void)
{
	int i, status, bad = 0;

	for (i = 0; i < 100; i++)
		if (fork() == 0)
			_exit(answer(usher_hint(USHER_HINT_SET, 1 + i % 2, 0)) != 1 + i % 2);
	for (i = 0; i < 100; i++)
		bad += wait(&status) < 0 || status != 0;
	expect("of a hundred children, those not served", bad, 0);
}

static pthread_barrier_t all_there, all_set;
static int crowd_bad, crowd_again;

/* In a crowd the kernel may pass a call over (bpf/hint.bpf.h): then once more. */
static int patiently(int op, int flags)
{
	int result = answer(usher_hint(op, flags, 0));

	if (result != -EINVAL)
		return result;
	__atomic_fetch_add(&crowd_again, 1, __ATOMIC_RELAXED);
	return answer(usher_hint(op, flags, 0));
}

static void *one_of_many(void *number)
{
	int mine = 1 + (long)number % 2;

	pthread_barrier_wait(&all_there);
	if (patiently(USHER_HINT_SET, mine) != mine)
		__atomic_fetch_add(&crowd_bad, 1, __ATOMIC_RELAXED);
	pthread_barrier_wait(&all_set);
	if (patiently(USHER_HINT_GET, 0) != mine)
		__atomic_fetch_add(&crowd_bad, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* Ten thousand tasks, all there before the first hints, and none gone before the last has. */
static void crowd(void)
{
	static pthread_t threads[CROWD];
	pthread_attr_t attributes;
	long i, born;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK);
	pthread_barrier_init(&all_there, NULL, CROWD);
	pthread_barrier_init(&all_set, NULL, CROWD);
	for (born = 0; born < CROWD; born++) {
		int error = pthread_create(&threads[born], &attributes, one_of_many, (void *)born);

		if (error) {
			printf("only %ld of %d tasks: %s\n", born, CROWD, strerror(error));
			exit(1);
		}
	}
	for (i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	expect("of a crowd, those not served", crowd_bad, 0);
	printf("asked again: %d\n", crowd_again);
	expect("asked again more than once in 1,000 calls", crowd_again > CROWD / 500, 0);
}

/* Options that the kernel serves itself, and one that it does not know: as without us. */
static void others(void)
{
	char name[16] = "";

	expect("dumpable", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), 1);
	expect("a name set", prctl(PR_SET_NAME, "another", 0, 0, 0), 0);
	expect("a name got", prctl(PR_GET_NAME, name, 0, 0, 0) || strcmp(name, "another"), 0);
	expect("a signal too high", prctl(PR_SET_PDEATHSIG, 1000, 0, 0, 0) < 0 ? errno : 0, EINVAL);
	expect("no such option", prctl(0x75736873, 1, 1, 0, 0) < 0 ? errno : 0, EINVAL);
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
	others();

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
	expect("rights: by capability", in_child(as_nice), 0);
	expect("hinted by another", get(), 5);
	children();
	crowd();
	expect("taken back", answer(usher_hint(USHER_HINT_SET, 0, 0)), 0);
	expect("gone", in_child(get), 0);
	if (!failures)
		puts("as promised");
	return failures > 0;
}
