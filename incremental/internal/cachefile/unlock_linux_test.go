//go:build amd64 || arm64 || loong64 || riscv64

package cachefile

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc/internal/callfaults"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const unlockVariable = "FILEPROC_TEST_UNLOCK"

// TestInterruptedUnlock: the lock is released although a signal interrupts the unlock.
func TestInterruptedUnlock(t *testing.T) {
	if file := os.Getenv(unlockVariable); file != "" {
		interruptedUnlock(t, file)
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestInterruptedUnlock$", "-test.v")
	cmd.Env = append(os.Environ(), unlockVariable+"="+filepath.Join(t.TempDir(), "cache"))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
}

func interruptedUnlock(t *testing.T, file string) {
	var interrupted atomic.Int64
	err := callfaults.Start([]uintptr{unix.SYS_FLOCK}, func(c callfaults.Call) (int, unix.Errno, bool) {
		if c.Args[1] != unix.LOCK_UN || interrupted.Load() > 0 {
			return 0, 0, false
		}
		interrupted.Add(1)
		return 0, unix.EINTR, true
	})
	if err != nil {
		t.Skip("seccomp may not answer calls here: ", err)
	}
	unlock, locked, err := lock(t.Context(), file)
	require.NoError(t, err)
	require.True(t, locked)
	unlock()
	other, err := os.Open(file + lockSuffix)
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB), "it is still locked")
	require.EqualValues(t, 1, interrupted.Load())
}
