package sys

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMemoryOfGroups(t *testing.T) {
	const v1, v2 = "sys/fs/cgroup/memory/", "sys/fs/cgroup/"
	for name, tc := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no groups":                {map[string]string{}, math.MaxInt64},
		"2, no limit":              {map[string]string{"proc/self/cgroup": "0::/a\n", v2 + "a/memory.max": "max\n"}, math.MaxInt64},
		"2, its own":               {map[string]string{"proc/self/cgroup": "0::/a/b\n", v2 + "a/b/memory.max": "123\n", v2 + "a/memory.max": "max\n"}, 123},
		"2, one above":             {map[string]string{"proc/self/cgroup": "0::/a/b/c\n", v2 + "a/b/c/memory.max": "123\n", v2 + "a/memory.max": "99\n"}, 99},
		"2, at the mount's root":   {map[string]string{"proc/self/cgroup": "0::/kubepods/x\n", v2 + "memory.max": "77\n"}, 77},
		"2, outside the namespace": {map[string]string{"proc/self/cgroup": "0::/../x\n", v2 + "memory.max": "55\n"}, 55},
		"1":                        {map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/a\n0::/\n", v1 + "a/memory.limit_in_bytes": "44\n", v1 + "memory.limit_in_bytes": "9223372036854771712\n"}, 44},
		"1, with another":          {map[string]string{"proc/self/cgroup": "4:hugetlb,memory:/docker/x", v1 + "memory.limit_in_bytes": "33"}, 33},
		"damaged":                  {map[string]string{"proc/self/cgroup": "\n:\nmemory\n4:memory\n", v1 + "memory.limit_in_bytes": "x"}, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, text := range tc.files {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			require.Equal(t, tc.want, groupLimit(root))
		})
	}
}

// A large buffer asks for huge pages: to give back others takes so long that a stop would be seen late.
func TestLargeMemoryHasHugePages(t *testing.T) {
	require.Equal(t, unix.MADV_HUGEPAGE, madvHugePage)
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil {
		t.Skip("a kernel without huge pages: ", err)
	}
	for _, size := range []int64{hugeFrom - 1, hugeFrom} {
		p, err := AllocLarge(size)
		require.NoError(t, err)
		maps, err := os.ReadFile("/proc/self/smaps")
		FreeLarge(p)
		require.NoError(t, err)
		_, ours, found := strings.Cut(string(maps), fmt.Sprintf("\n%x-", unsafe.SliceData(p)))
		if !found {
			t.Skip("the mapping is part of another")
		}
		_, flags, _ := strings.Cut(ours, "VmFlags:")
		flags, _, _ = strings.Cut(flags, "\n")
		require.Equal(t, size == hugeFrom, slices.Contains(strings.Fields(flags), "hg"), "%d bytes: %s", size, flags)
	}
}
