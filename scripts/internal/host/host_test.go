package host

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHost(t *testing.T) {
	if _, err := os.Stat("/proc/self/mounts"); err != nil {
		t.Skip("no /proc: ", err)
	}
	if err := exec.Command("df", "--output=fstype", "/").Run(); err != nil {
		t.Skip("no df that says the type of a file system: ", err)
	}
	require.Regexp(t, `, `+runtime.GOOS+` \d[^,\s]+, `, Machine("/"))
	require.Equal(t, "proc", FileSystem("/proc/self"))
	t.Chdir("/proc")
	require.Equal(t, "proc", FileSystem("."), "a relative path")
	require.Empty(t, FileSystem("/no such directory"))
}
