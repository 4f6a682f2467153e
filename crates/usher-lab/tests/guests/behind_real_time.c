/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What waits behind real-time work. Runs in a guest with two CPUs, as root, and says how many nanoseconds it took.
 *
 * "urgent": CPU 1 has run batch work and idles when real-time work begins there, for two seconds; then urgent work wakes beside what keeps CPU 0
 * busy, and is worth more than batch. How long the urgent task waited for a CPU at the most.
 *
 * "urgent-beside": the same, but the batch work still runs when real-time work takes the CPU from it.
 *
 * "given": CPU 1 idles, and real-time work is woken there, and right after that another task, which ran there last. How long that one
 * takes to wake.
 *
 * "displaced": a task computes on CPU 1 when real-time work takes that for a second, and CPU 0 idles. How long it did not run.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	perror(what);
	exit(1);
}

static void stay(int first, int last)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (; first <= last; first++)
		CPU_SET(first, &set);
	must(sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

static void become(int policy, int priority)
{
	struct sched_param param = { .sched_priority = priority };

	must(sched_setscheduler(0, policy, &param), "sched_setscheduler");
}

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void compute_ms(unsigned int ms)
{
	unsigned long long end_ns = now_ns() + ms * 1000000ull;

	while (now_ns() < end_ns)
		;
}

static pid_t child(int cpu)
{
	pid_t pid = fork();

	must(pid, "fork");
	if (!pid)
		stay(cpu, cpu);
	return pid;
}

static unsigned long long waited_ns(void)
{
	unsigned long long ran_ns, waited_ns;
	FILE *file = fopen("/proc/self/schedstat", "r");

	if (!file || fscanf(file, "%llu %llu", &ran_ns, &waited_ns) != 2)
		must(-1, "/proc/self/schedstat");
	fclose(file);
	return waited_ns;
}

/* Sleeps and wakes so many times. The longest that it waited then. */
static unsigned long long wake(int times)
{
	unsigned long long before = waited_ns(), longest_ns = 0;

	while (times--) {
		unsigned long long now;

		usleep(20000);
		now = waited_ns();
		if (now - before > longest_ns)
			longest_ns = now - before;
		before = now;
	}
	return longest_ns;
}

static int given(void)
{
	unsigned long long begun, took_ns;
	int work[2], go[2], answer[2];
	char byte = 0;

	stay(0, 0);
	must(pipe(work) | pipe(go) | pipe(answer), "pipe");
	if (!child(1)) {
		become(SCHED_FIFO, 10);
		must(read(work[0], &byte, 1), "read");
		compute_ms(1000);
		return 0;
	}
	if (!child(1)) {
		usleep(1000);
		stay(0, 1);
		must(read(go[0], &byte, 1), "read");
		begun = now_ns();
		must(write(answer[1], &begun, sizeof(begun)), "write");
		return 0;
	}
	usleep(100000);
	begun = now_ns();
	must(write(work[1], &byte, 1), "write");
	must(write(go[1], &byte, 1), "write");
	must(read(answer[0], &took_ns, sizeof(took_ns)), "read");
	printf("%llu\n", took_ns - begun);
	return 0;
}

static int displaced(void)
{
	unsigned long long last_ns, longest_ns = 0, end_ns;

	stay(0, 0);
	if (!child(1)) {
		become(SCHED_FIFO, 10);
		usleep(500000);
		compute_ms(1000);
		return 0;
	}
	if (child(1)) {
		must(wait(NULL), "wait");
		must(wait(NULL), "wait");
		return 0;
	}
	compute_ms(100);
	stay(0, 1);
	last_ns = now_ns();
	end_ns = last_ns + 2000000000ull;
	while (last_ns < end_ns) {
		unsigned long long at_ns = now_ns();

		if (at_ns - last_ns > longest_ns)
			longest_ns = at_ns - last_ns;
		last_ns = at_ns;
	}
	printf("%llu\n", longest_ns);
	return 0;
}

static int urgent(bool batch_ends)
{
	int go[2];
	char byte = 0;
	pid_t batch, normal, real_time;

	stay(0, 0);
	must(pipe(go), "pipe");
	real_time = child(1);
	if (!real_time) {
		become(SCHED_FIFO, 10);
		must(read(go[0], &byte, 1), "read");
		compute_ms(2000);
		return 0;
	}
	normal = child(0);
	if (!normal) {
		/* By its weight: it never sleeps, as in an emulator a short sleep beside one who computes is over before it begins. */
		must(setpriority(PRIO_PROCESS, 0, -5), "setpriority");
		for (;;)
			;
	}
	batch = child(1);
	if (!batch) {
		become(SCHED_BATCH, 0);
		for (;;)
			;
	}
	must(setpriority(PRIO_PROCESS, 0, -15), "setpriority");
	wake(10);
	if (batch_ends) {
		kill(batch, SIGKILL);
		must(waitpid(batch, NULL, 0), "waitpid");
	}
	must(write(go[1], &byte, 1), "write");
	usleep(50000);
	stay(0, 1);
	printf("%llu\n", wake(50));
	if (!batch_ends)
		kill(batch, SIGKILL);
	kill(normal, SIGKILL);
	kill(real_time, SIGKILL);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "urgent"))
		return urgent(true);
	if (argc == 2 && !strcmp(argv[1], "urgent-beside"))
		return urgent(false);
	if (argc == 2 && !strcmp(argv[1], "given"))
		return given();
	if (argc == 2 && !strcmp(argv[1], "displaced"))
		return displaced();
	fprintf(stderr, "usage: %s urgent|urgent-beside|given|displaced\n", argv[0]);
	return 2;
}
