// bcryptprimitives.dll for a wine that has none: Go's runtime takes its random numbers from ProcessPrng, and from nothing else.
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG); // RtlGenRandom of advapi32, which every wine has

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size)
{
	while (size > 0) {
		ULONG part = size < 1 << 20 ? (ULONG)size : 1 << 20;
		if (!SystemFunction036(data, part))
			return FALSE;
		data += part;
		size -= part;
	}
	return TRUE;
}
