//go:build linux

package churn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"golang.org/x/sys/unix"
)

// Tree is the command tree. It makes and checks trees in which nothing changes, on file systems of all kinds.
func Tree(ctx context.Context, args []string) error {
	flags := trial.NewFlags("tree")
	makeTree := flags.String("make", "", "write the tree of -seed into this new directory")
	checkTree := flags.String("check", "", "check the tree of -seed in this directory, which may be read-only")
	runs := flags.Int("runs", 100, "with -check: how many runs")
	cold := flags.Bool("cold", false, "with -check: drop the machine's caches before each run (root)")
	compressible := flags.Bool("compressible", false, "with -make and -check: the files have contents that file systems can compress")
	locked := flags.Bool("locked", false, "with -check: the directory is encrypted and its key removed, so each file has to fail with ENOKEY")
	encryptDir := flags.String("encrypt", "", "make this new directory encrypted, by a fixed key (root)")
	lockDir := flags.String("lock", "", "remove the key of -encrypt from the file system of this directory (root)")
	unlockDir := flags.String("unlock", "", "add the key of -encrypt to the file system of this directory (root)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *compressible {
		contentOf = compressibleBytesOf
	}
	switch {
	case *makeTree != "":
		if err := os.Mkdir(*makeTree, 0o755); err != nil {
			return err
		}
		return trial.Write(*makeTree, contentOf, plan(flags.Seed)...)
	case *checkTree != "":
		return check(ctx, flags, *checkTree, *runs, *cold, *locked)
	case *encryptDir != "":
		return encrypt(*encryptDir)
	case *lockDir != "":
		return lock(*lockDir)
	case *unlockDir != "":
		_, err := unlock(*unlockDir)
		return err
	}
	return errors.New("want one of -make, -check, -encrypt, -lock and -unlock")
}

// check makes runs on the tree of -seed, which -make has written to root.
func check(ctx context.Context, flags *trial.Flags, root string, runs int, cold, locked bool) error {
	t, random := &tree{root: root, stable: trial.Set(plan(flags.Seed))}, rand.New(rand.NewSource(flags.Seed))
	for range runs {
		if cold {
			if err := trial.DropCaches(); err != nil {
				return err
			}
		}
		c := newAttempt(random, t, flags)
		if c.Entry == "incremental" { // root may be read-only, and is not the place for a cache
			c.Entry = "Process"
		}
		do := c.do
		if locked {
			do = c.doLocked
		}
		if err := do(ctx); err != nil {
			return fmt.Errorf("%w\nin %v", err, c)
		}
	}
	flags.Print()
	return ctx.Err()
}

// A rawKey is the argument of FS_IOC_ADD_ENCRYPTION_KEY.
type rawKey struct {
	unix.FscryptAddKeyArg
	raw [unix.FSCRYPT_MAX_KEY_SIZE]byte
}

func ioctl(dir, name string, request uintptr, arg unsafe.Pointer) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), request, uintptr(arg)); errno != 0 {
		return &fs.PathError{Op: name, Path: dir, Err: errno}
	}
	return nil
}

// unlock adds a fixed key to the file system of dir and returns the identifier that the kernel gives it.
func unlock(dir string) (unix.FscryptKeySpecifier, error) {
	key := rawKey{FscryptAddKeyArg: unix.FscryptAddKeyArg{Raw_size: unix.FSCRYPT_MAX_KEY_SIZE}}
	key.Key_spec.Type = unix.FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER
	copy(key.raw[:], bytes.Repeat([]byte("soak"), unix.FSCRYPT_MAX_KEY_SIZE/4))
	err := ioctl(dir, "FS_IOC_ADD_ENCRYPTION_KEY", unix.FS_IOC_ADD_ENCRYPTION_KEY, unsafe.Pointer(&key))
	return key.Key_spec, err
}

// encrypt makes the directory dir, in which everything will be encrypted.
func encrypt(dir string) error {
	key, err := unlock(filepath.Dir(dir))
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	policy := unix.FscryptPolicyV2{
		Version:                   unix.FSCRYPT_POLICY_V2,
		Contents_encryption_mode:  unix.FSCRYPT_MODE_AES_256_XTS,
		Filenames_encryption_mode: unix.FSCRYPT_MODE_AES_256_CTS,
		Flags:                     unix.FSCRYPT_POLICY_FLAGS_PAD_32,
	}
	copy(policy.Master_key_identifier[:], key.U[:])
	return ioctl(dir, "FS_IOC_SET_ENCRYPTION_POLICY", unix.FS_IOC_SET_ENCRYPTION_POLICY, unsafe.Pointer(&policy))
}

// lock removes the key from the file system of dir.
func lock(dir string) error {
	key, err := unlock(dir) // the only call that returns the key's identifier
	if err != nil {
		return err
	}
	arg := unix.FscryptRemoveKeyArg{Key_spec: key}
	err = ioctl(dir, "FS_IOC_REMOVE_ENCRYPTION_KEY", unix.FS_IOC_REMOVE_ENCRYPTION_KEY, unsafe.Pointer(&arg))
	if err == nil && arg.Removal_status_flags != 0 {
		err = fmt.Errorf("the key of %s is still in use: status %#x", dir, arg.Removal_status_flags)
	}
	return err
}

// doLocked makes a run on an encrypted tree whose key was removed. The kernel then lists other names and opens no file. The run has
// to list everything, and has to report each file that it cannot open.
func (c *attempt) doLocked(ctx context.Context) error {
	var size atomic.Int64
	wantSize, dirs, failed := int64(0), map[string]bool{}, map[string]bool{}
	for rel := range c.t.stable {
		wantSize += int64(len(contentOf(rel)))
		dirs[filepath.Dir(rel)] = true
	}
	o := c.Opts
	r := trial.Run{Root: c.Root, Entry: c.Entry, Want: map[string]bool{}, May: func(string) bool { return true },
		Opts: fileproc.Options{Workers: o.Workers, Ordered: o.Ordered, DisableURing: o.DisableURing, ReadSize: o.ReadSize, Stat: o.Stat},
		File: func(f *fileproc.File, _ *trial.Answer) error {
			s, err := f.Stat()
			size.Add(s.Size)
			return err
		},
		Failure: func(rel string, err error) error {
			if !errors.Is(err, unix.ENOKEY) || failed[rel] {
				return err
			}
			failed[rel] = true
			return nil
		}}
	if err := r.Do(ctx); err != nil {
		return err
	}
	files, opened := len(c.t.stable), r.Entry != "Walk" && r.Opts.ReadSize != fileproc.NoRead
	listed, lost := files, 0
	if opened {
		listed, lost = 0, files
	}
	switch {
	case len(r.Seen) != listed || r.Files != int64(listed) || len(failed) != lost || r.Report.Found != int64(files):
		return fmt.Errorf("%d files delivered, %d of them different, of %d, %d failed: %+v", r.Files, len(r.Seen), files, len(failed), r.Report)
	case !opened && r.Entry != "Walk" && size.Load() != wantSize:
		return fmt.Errorf("the sizes add up to %d, not %d", size.Load(), wantSize)
	case r.Entry == "Walk" && r.Dirs < int64(len(dirs)-1):
		return fmt.Errorf("%d directories listed of %d", r.Dirs, len(dirs)-1)
	}
	c.flags.Count("files that failed with ENOKEY, as they have to", int64(lost))
	return nil
}
