package replace

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestKeepACL: the new file gets the ACL of the old one, and loses what it has inherited.
func TestKeepACL(t *testing.T) {
	dir := t.TempDir()
	var fds [2]int
	var paths [2]string
	for i, name := range []string{"old", "new"} {
		paths[i] = filepath.Join(dir, name)
		f, err := os.Create(paths[i])
		require.NoError(t, err)
		defer f.Close()
		fds[i] = int(f.Fd())
	}
	chmod := func(args ...string) {
		out, err := exec.Command("chmod", args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	require.NoError(t, keepACL(fds[0], fds[1]))
	chmod("+a", "everyone deny execute", paths[0])
	require.NoError(t, keepACL(fds[0], fds[1]))
	out, err := exec.Command("ls", "-le", paths[1]).Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "deny execute")
	chmod("-N", paths[0])
	require.NoError(t, keepACL(fds[0], fds[1]))
	acl, err := aclOf(fds[1])
	require.NoError(t, err)
	require.Nil(t, acl)
	chmod("+a", "everyone deny delete", paths[0])
	chmod("+a", "everyone deny delete", paths[1]) // as if both had inherited it
	require.ErrorIs(t, keepACL(fds[0], fds[1]), unix.EACCES)
	acl, err = aclOf(fds[1])
	require.NoError(t, err)
	require.Nil(t, acl, "it can be removed")
}
