//go:build linux

package fileproc_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each of the tasks runs in a process of its own, which may be limited, measured or given another user.
var tasks = map[string]func(t *testing.T, root string){
	"limit":      underALimit(32),
	"hogged":     withFewLeft,
	"begin":      beginWithNoneLeft,
	"crowd":      manyRunsAtOnce(64, 128),
	"nested":     nestedRuns,
	"recursion":  recursiveRuns,
	"peak":       measuredPeak,
	"other":      asAnotherUser,
	"searched":   belowSearchOnly,
	"streaming":  streaming,
	"unreadable": unreadableAmongMany,
	"mounts":     acrossMounts,
}

// taskPatience is less than the time limit of go test.
const taskPatience = 5 * time.Minute

const taskVariable = "FILEPROC_TEST_TASK"

// TestInvariantInAProcessOfItsOwn does nothing unless runTask has started this process.
func TestInvariantInAProcessOfItsOwn(t *testing.T) {
	if name, root, ok := strings.Cut(os.Getenv(taskVariable), "="); ok {
		watchdog(t)
		tasks[name](t, root)
	}
}

// runTask runs one of the tasks and returns what it printed; ok is false where this binary cannot be started, as under an emulator.
func runTask(t *testing.T, name, root string, change ...func(*exec.Cmd)) (output string, ok bool) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), taskPatience) // a process that hangs must not outlive the tests
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestInvariantInAProcessOfItsOwn$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), taskVariable+"="+name+"="+root)
	if raceDetector { // it sleeps for a second before its process exits, for the reports of goroutines that still run: none does
		cmd.Env = append(cmd.Env, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	}
	for _, f := range change {
		f(cmd)
	}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Logf("left out: %v", err)
		return "", false
	}
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestInvariantInAProcessOfItsOwn")
	return string(out), true
}

// asNobody returns the settings to run a task as another user, with a copy of the binary that this user can reach. Without the
// right to change users, the task runs as the current user.
func asNobody(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		return func(*exec.Cmd) {}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	binary, err := os.ReadFile(self)
	require.NoError(t, err)
	dir := t.TempDir()
	copied, tmp := filepath.Join(dir, "fileproc.test"), filepath.Join(dir, "tmp")
	require.NoError(t, errors.Join(os.WriteFile(copied, binary, 0o755), os.Mkdir(tmp, 0o777)))
	require.NoError(t, errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(tmp, 0o777)))
	return func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args[0], cmd.Dir = copied, copied, dir
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp, "GOTMPDIR="+tmp)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}
