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

const (
	unlockVariable  = "FILEPROC_TEST_UNLOCK"
	noLocksVariable = "FILEPROC_TEST_NO_LOCKS"
)

// TestInterruptedUnlock: the lock is released although a signal interrupts the unlock.
func TestInterruptedUnlock(t *testing.T) {
	inProcess(t, unlockVariable, interruptedUnlock)
}

// inProcess runs test in a process of its own, which the variable tells the file of a cache.
func inProcess(t *testing.T, variable string, test func(t *testing.T, file string)) {
	if file := os.Getenv(variable); file != "" {
		test(t, file)
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+filepath.Join(t.TempDir(), "cache"))
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

// TestNoLocks: where the file system has no locks, a save goes without. Any other failure of a lock is an error. It is tried once.
func TestNoLocks(t *testing.T) {
	inProcess(t, noLocksVariable, noLocks)
}

func noLocks(t *testing.T, file string) {
	var fails, calls atomic.Int64
	err := callfaults.Start([]uintptr{unix.SYS_FLOCK}, func(callfaults.Call) (int, unix.Errno, bool) {
		calls.Add(1)
		return 0, unix.Errno(fails.Load()), true
	})
	if err != nil {
		t.Skip("seccomp may not answer calls here: ", err)
	}
	for errno, ok := range map[unix.Errno]bool{unix.ENOLCK: true, unix.ENOSYS: true, unix.EOPNOTSUPP: true, unix.EPERM: false} {
		fails.Store(int64(errno))
		calls.Store(0)
		unlock, locked, err := lock(t.Context(), file)
		require.False(t, locked, errno)
		require.EqualValues(t, 1, calls.Load(), errno)
		if !ok {
			require.ErrorIs(t, err, errno)
			continue
		}
		require.NoError(t, err, errno)
		unlock()
		mustSave(t, mustLoad(t, file), testRecord(int(errno)))
		require.Contains(t, contents(t, mustLoad(t, file)), testRecord(int(errno)).Path)
	}
}
