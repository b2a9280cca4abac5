package replace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/windows"
)

// replaceIn replaces the file f in dir.
func replaceIn(t *testing.T, dir string) error {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	old, err := root.Open("f")
	require.NoError(t, err)
	defer old.Close()
	_, err = InRoot(root, old, names.New("f"), []byte("new"), func(sys.Stat, Old) error { return nil }, true)
	return err
}

func requireContent(t *testing.T, dir, want string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "f"))
	require.NoError(t, err)
	require.Equal(t, want, string(data))
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, all, 1, "a temporary file is left")
}

func lookAt(t *testing.T, name string) belongings {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	b, err := belongingsOf(f)
	require.NoError(t, err)
	return b
}

// TestKeepOnWindows: attributes and ACL stay.
func TestKeepOnWindows(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
	before := lookAt(t, name)
	path, err := windows.UTF16PtrFromString(name)
	require.NoError(t, err)
	require.NoError(t, windows.SetFileAttributes(path, windows.FILE_ATTRIBUTE_HIDDEN|windows.FILE_ATTRIBUTE_SYSTEM))
	sd, err := windows.GetNamedSecurityInfo(name, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	require.NoError(t, err)
	owner, _, err := sd.Owner()
	require.NoError(t, err)
	sd, err = windows.SecurityDescriptorFromString("D:P(A;;FA;;;" + owner.String() + ")")
	require.NoError(t, err)
	f, err := os.Open(name)
	require.NoError(t, err)
	h, err := openAt(f, "", windows.WRITE_DAC, windows.FILE_OPEN)
	require.NoError(t, err)
	require.NoError(t, windows.SetKernelObjectSecurity(h, windows.DACL_SECURITY_INFORMATION, sd))
	require.NoError(t, windows.CloseHandle(h))
	require.NoError(t, f.Close())
	was := lookAt(t, name)
	require.NotEqual(t, before.attributes, was.attributes)
	require.NotEqual(t, before.security, was.security)
	require.NoError(t, replaceIn(t, dir))
	requireContent(t, dir, "new")
	is := lookAt(t, name)
	require.Equal(t, was.attributes, is.attributes)
	require.Equal(t, was.security, is.security)
}

// TestKeepNamedOnWindows: so do other streams, and the creation time. Wine has neither.
func TestKeepNamedOnWindows(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	want := windows.Filetime{HighDateTime: 30_000_000}
	require.NoError(t, keepAttributes(f, belongings{created: want}))
	require.NoError(t, f.Close())
	stream := name + ":stream"
	if err := os.WriteFile(stream, []byte("beside"), 0o600); err != nil || lookAt(t, name).created != want || len(lookAt(t, name).named) != 1 {
		t.Skip("no streams, or no creation times: ", err)
	}
	require.NoError(t, replaceIn(t, dir))
	requireContent(t, dir, "new")
	data, err := os.ReadFile(stream)
	require.NoError(t, err)
	require.Equal(t, "beside", string(data))
	require.Equal(t, want, lookAt(t, name).created)
}

// TestReplaceOpenOnWindows: a file that another program has open, or that is read-only, stays as it is, with a clear error.
func TestReplaceOpenOnWindows(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
	f, err := os.Open(name) // forbids others to rename it
	require.NoError(t, err)
	require.ErrorIs(t, replaceIn(t, dir), windows.ERROR_SHARING_VIOLATION)
	require.NoError(t, f.Close())
	requireContent(t, dir, "old")
	require.NoError(t, os.Chmod(name, 0o400))
	require.ErrorIs(t, replaceIn(t, dir), os.ErrPermission)
	requireContent(t, dir, "old")
	require.NoError(t, os.Chmod(name, 0o600))
	require.NoError(t, replaceIn(t, dir))
	requireContent(t, dir, "new")
}
