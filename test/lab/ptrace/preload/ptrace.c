/*
 * A ptrace(2) that takes an x86 extended register set shorter than the machine's.
 *
 * PTRACE_SETREGSET with NT_X86_XSTATE takes the whole set or answers EFAULT, and
 * User Mode Linux passes what processors had when it was written: 2,696 bytes. A
 * processor with AMX has 11,008. Here the part that is given is padded; the state
 * components beyond it get their initial values.
 *
 * For one thread, the tracer's: User Mode Linux has no other.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
	XSTATE_LEAF = 0xd, /* of CPUID: one subleaf for each state component */
	XSTATE_BV = 512,   /* offset of the bitmap of components that are not initial */
	HEADER_END = 576,
	COMPONENTS = 63,
};

static long (*next_ptrace)(int request, pid_t pid, void *addr, void *data);
static size_t component_end[COMPONENTS];
static unsigned char whole[1 << 20]; /* larger than any machine's set */
static size_t whole_size;            /* of this machine; 0: not known yet */

__attribute__((constructor)) static void start(void)
{
	next_ptrace = (long (*)(int, pid_t, void *, void *))dlsym(RTLD_NEXT, "ptrace");
	for (int i = 2; i < COMPONENTS; i++) {
		unsigned int size, offset, flags, unused;
		if (__get_cpuid_count(XSTATE_LEAF, i, &size, &offset, &flags, &unused))
			component_end[i] = offset + size;
	}
}

static long set_xstate(pid_t pid, void *type, struct iovec *given)
{
	if (whole_size == 0) {
		struct iovec all = {whole, sizeof whole};
		if (next_ptrace(PTRACE_GETREGSET, pid, type, &all) < 0)
			return -1;
		whole_size = all.iov_len;
	}
	if (given->iov_len < HEADER_END || given->iov_len >= whole_size)
		return next_ptrace(PTRACE_SETREGSET, pid, type, given);

	memcpy(whole, given->iov_base, given->iov_len);
	memset(whole + given->iov_len, 0, whole_size - given->iov_len);
	uint64_t present;
	memcpy(&present, whole + XSTATE_BV, sizeof present);
	for (int i = 2; i < COMPONENTS; i++)
		if (component_end[i] > given->iov_len)
			present &= ~(UINT64_C(1) << i);
	memcpy(whole + XSTATE_BV, &present, sizeof present);
	struct iovec padded = {whole, whole_size};
	return next_ptrace(PTRACE_SETREGSET, pid, type, &padded);
}

/* All else is as the C library has it, which returns what PTRACE_PEEK* read. */
long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);
	if (request == PTRACE_SETREGSET && (uintptr_t)addr == NT_X86_XSTATE)
		return set_xstate(pid, addr, data);
	return next_ptrace(request, pid, addr, data);
}
