//go:build linux

package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"github.com/fileproc/fileproc"
	"golang.org/x/sys/unix"
)

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
	if err := ioctl(dir, "FS_IOC_REMOVE_ENCRYPTION_KEY", unix.FS_IOC_REMOVE_ENCRYPTION_KEY, unsafe.Pointer(&arg)); err != nil {
		return err
	}
	if arg.Removal_status_flags != 0 {
		return fmt.Errorf("the key of %s is still in use: status %#x", dir, arg.Removal_status_flags)
	}
	return nil
}

// checkLocked checks runs on a tree that writeTree has written to the encrypted directory root, after its key was removed.
// The kernel then lists other names and opens no file. Each run has to list everything, and has to report each file that it
// cannot open.
func checkLocked(root string, seed int64, runs int, cold bool) error {
	t, err := written(root, seed)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewSource(seed))
	start := time.Now()
	var failures int
	for range runs {
		if cold {
			if err := dropCaches(); err != nil {
				return err
			}
		}
		c := newTrial(random, t, false)
		opts := fileproc.Options{Workers: c.opts.Workers, DisableURing: c.opts.DisableURing, ReadSize: c.opts.ReadSize, Stat: c.opts.Stat}
		n, err := t.checkLocked(opts, c.entry)
		if err != nil {
			return fmt.Errorf("%w\nin %s with %+v", err, c.entry, opts)
		}
		failures += n
	}
	fmt.Printf("%s: %d runs without the key; %d files failed with ENOKEY, as they have to\n",
		time.Since(start).Round(time.Second), runs, failures)
	return nil
}

// checkLocked checks one run and returns how many files have failed in it.
func (t *tree) checkLocked(opts fileproc.Options, entry string) (int, error) {
	var report fileproc.Report
	opts.Report = &report
	failed := map[string]bool{}
	var wrong error
	opts.OnError = func(err error) error {
		var p *fs.PathError
		if !errors.As(err, &p) || !errors.Is(err, unix.ENOKEY) || !strings.HasPrefix(p.Path, t.root) || failed[p.Path] {
			wrong = errors.Join(wrong, fmt.Errorf("failed with %w", err))
			return err
		}
		failed[p.Path] = true
		return nil
	}
	type delivered struct {
		rel  string
		size int64
	}
	fn := func(f *fileproc.File) (delivered, error) {
		s, err := f.Stat()
		if err != nil {
			return delivered{}, fmt.Errorf("stat: %w", err)
		}
		return delivered{f.Rel(), s.Size}, nil
	}
	var got []delivered
	var dirs int
	var err error
	switch entry {
	case "Process":
		got, err = fileproc.Process(context.Background(), t.root, opts, fn)
	case "Stream":
		for d, e := range fileproc.Stream(context.Background(), t.root, opts, fn) {
			if e == nil {
				got = append(got, d)
			}
			err = errors.Join(err, e)
		}
	case "Walk":
		for e, failure := range fileproc.Walk(context.Background(), t.root, opts) {
			switch err = errors.Join(err, failure); {
			case failure != nil:
			case e.IsDir():
				dirs++
			default:
				got = append(got, delivered{rel: e.Rel()})
			}
		}
	}
	if err := errors.Join(wrong, err); err != nil {
		return 0, err
	}
	var size, wantSize int64
	distinct := map[string]bool{}
	for _, d := range got {
		distinct[d.rel] = true
		size += d.size
	}
	wantDirs := map[string]bool{}
	for rel := range t.stable {
		wantSize += int64(len(contentOf(rel)))
		wantDirs[filepath.Dir(rel)] = true
	}
	files := len(t.stable)
	opened := entry != "Walk" && opts.ReadSize != fileproc.NoRead
	switch {
	case opened && (len(got) != 0 || len(failed) != files || report.Failed != int64(files)):
		return 0, fmt.Errorf("%d files delivered, %d of %d failed: %+v", len(got), len(failed), files, report)
	case !opened && (len(got) != files || len(distinct) != files || len(failed) != 0):
		return 0, fmt.Errorf("%d of %d files listed, %d names, %d failed: %+v", len(got), files, len(distinct), len(failed), report)
	case !opened && entry != "Walk" && size != wantSize:
		return 0, fmt.Errorf("the sizes add up to %d, not %d", size, wantSize)
	case entry == "Walk" && dirs < len(wantDirs)-1:
		return 0, fmt.Errorf("%d directories listed of %d", dirs, len(wantDirs)-1)
	case report.Found != int64(files):
		return 0, fmt.Errorf("%d files: %+v", files, report)
	}
	return len(failed), nil
}
