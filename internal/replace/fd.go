//go:build !fileproc_generic && (aix || darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package replace

import (
	"cmp"
	"errors"
	"io/fs"

	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// Prepare writes data to a temporary file in the directory dir. Old is the open file of this name there. The temporary file
// gets what belongs to the old one. If durable is set, the new content is on the disk when Prepare returns. If anything fails,
// nothing is left.
func Prepare(dir, old int, name names.Name, data []byte, check Check, durable bool) (p Pending, err error) {
	was, err := sys.Fstat(old)
	if err == nil {
		err = sys.CheckRegular("fstat", was.Mode)
	}
	if err == nil {
		err = check(was, oldFile(old))
	}
	if err != nil {
		return p, err
	}
	p = Pending{Name: name, old: was}
	project, err := checkDir(dir)
	if err != nil {
		return p, err
	}
	fd, err := p.create(dir)
	if err != nil {
		return p, err
	}
	if err = p.fill(old, fd, data, project); err == nil && durable {
		err = fsync(fd)
	}
	if e := unix.Close(fd); e != nil && e != unix.EINTR && err == nil { // NFS reports a full disk here
		err = &sys.Error{Op: "close", Err: e}
	}
	if err != nil {
		err = errors.Join(err, p.Discard(dir))
	}
	return p, err
}

func (p *Pending) create(dir int) (fd int, err error) {
	for range 10 {
		p.Temporary = newName()
		fd, err = sys.IgnoringEINTR(func() (int, error) {
			return unix.Openat(dir, p.Temporary.String(), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		})
		if err != unix.EEXIST {
			break
		}
	}
	if err != nil {
		return -1, &sys.Error{Op: "create a temporary file beside", Err: err}
	}
	return fd, nil
}

// fill gives the temporary file fd what belongs to the old one, and then data.
func (p *Pending) fill(old, fd int, data []byte, project uint32) error {
	now, err := sys.Fstat(fd)
	if err == nil {
		err = keep(old, fd, p.old, now)
	}
	if err == nil {
		err = keepProject(old, fd, project)
	}
	if err == nil {
		err = write(fd, data)
	}
	if err != nil {
		return err
	}
	startWriteback(fd)
	if p.new, err = sys.Fstat(fd); err == nil {
		err = isKept(p.old, p.new)
	}
	return err
}

func write(fd int, data []byte) error {
	if len(data) == 0 { // takes setuid and setgid away, as a write does
		if _, err := sys.IgnoringEINTR(func() (int, error) { return 0, unix.Ftruncate(fd, 0) }); err != nil {
			return &sys.Error{Op: "ftruncate", Err: err}
		}
	}
	for at := 0; at < len(data); {
		n, err := sys.IgnoringEINTR(func() (int, error) { return unix.Pwrite(fd, data[at:][:min(len(data)-at, 1<<30)], int64(at)) })
		if err == nil && n == 0 {
			err = unix.EIO
		}
		if err != nil {
			return &sys.Error{Op: "pwrite64", Err: err}
		}
		at += n
	}
	return nil
}

// A Syncer is a descriptor of a file system.
type Syncer int

func (s Syncer) Close() { unix.Close(int(s)) }

func fsync(fd int) error {
	if _, err := sys.IgnoringEINTR(func() (int, error) { return 0, flush(fd) }); err != nil {
		return &sys.Error{Op: "fsync", Err: err}
	}
	return nil
}

// SyncDir makes the names in a directory durable, that of a new file among them. Some file systems have no such call for
// directories (SMB). A directory that may not be read cannot be synced: then the file's whole file system is, if that is possible.
func SyncDir(dir int, name names.Name) error {
	err := fsync(dir)
	switch {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP):
		return nil
	case errors.Is(err, unix.EBADF):
		s, e := OpenSync(dir, name)
		if e == errors.ErrUnsupported {
			e = unix.EACCES
		}
		if e != nil {
			return &sys.Error{Op: "fsync", Err: e}
		}
		defer s.Close()
		return s.Sync()
	}
	return err
}

// Discard removes the temporary file.
func (p *Pending) Discard(dir int) error { return Remove(dir, p.Temporary) }

// Remove removes a temporary file. It tries again once: the call may have been interrupted.
func Remove(dir int, temporary names.Name) error {
	err := unix.Unlinkat(dir, temporary.String(), 0)
	if err != nil && err != unix.ENOENT {
		err = unix.Unlinkat(dir, temporary.String(), 0)
	}
	if err != nil && err != unix.ENOENT {
		return &sys.Error{Op: "unlinkat", Err: err}
	}
	return nil
}

// Recheck returns an error if the old file's attributes have changed since Prepare: an exchange of names does not show that. Before
// Linux 6.13, it does not see a change in the same tick of the clock as the last one before. A file with several names is not
// checked, since a rename of one sets the change time of all.
func (p *Pending) Recheck(dir int) error {
	now, err := sys.StatAt(dir, p.Name)
	if err == nil && max(now.Links, p.old.Links) == 1 && !now.ChangeTime.Equal(p.old.ChangeTime) {
		err = changed("fstatat")
	}
	return err
}

// Commit gives the temporary file the name of the old one. If the file with that name is not the one that Check has seen, it
// stays, the temporary file is removed, and the error is ErrChanged. If IsDone, Commit returns the metadata that the file then has.
func (p *Pending) Commit(dir int) (sys.Stat, error) {
	AfterPrepare()
	err := exchange(dir, p.Temporary, p.Name)
	if isUnsupported(err) {
		err = p.rename(dir)
	} else {
		err = p.exchanged(dir, err)
	}
	if !IsDone(err) {
		return sys.Stat{}, err
	}
	now, e := sys.StatAt(dir, p.Name)
	if e == nil && !now.ModTime.Equal(p.new.ModTime) && isSMB(dir) {
		p.new.ModTime = now.ModTime
	}
	if e == nil && isFile(now, p.new) {
		return now, err
	}
	return p.new, err // File.Unchanged then finds a change
}

// isUnsupported reports whether err says that names cannot be exchanged. The seccomp filters of old containers answer EPERM. If
// that has another reason, the rename has it too.
func isUnsupported(err error) bool {
	return err == unix.ENOSYS || err == unix.EINVAL || err == unix.ENOTSUP || err == unix.EOPNOTSUPP || err == unix.EPERM
}

// rename gives the temporary file the name without an exchange: what is saved between its look and the rename is lost.
func (p *Pending) rename(dir int) error {
	now, err := sys.StatAt(dir, p.Name)
	if err == nil && !(isFile(p.old, now) && now.ChangeTime.Equal(p.old.ChangeTime)) {
		err = changed("fstatat")
	}
	if err == nil {
		if e := unix.Renameat(dir, p.Temporary.String(), dir, p.Name.String()); e != nil {
			err = &sys.Error{Op: "renameat", Err: e}
		}
	}
	if err != nil {
		err = errors.Join(err, p.Discard(dir))
	}
	return err
}

// exchanged looks at what the first exchange of names, which has returned err, has brought out. If that is not the old file,
// somebody has saved meanwhile: exchanged exchanges the names again, and looks again. Each time, what comes out must be what
// went in before. Otherwise it was saved last, and goes back.
func (p *Pending) exchanged(dir int, err error) error {
	in, out := p.new, p.old // what goes in, and what should come out
	why := changed("renameat2")
	for tries, back := 0, false; ; tries++ {
		came, lookErr := p.look(dir)
		switch {
		case err != nil && lookErr == nil && isFile(came, in): // the names are as they were
			if !back {
				return errors.Join(exchangeError(err), p.Discard(dir))
			}
			if err == unix.ENOENT { // somebody has removed the name: what they had saved before comes back
				err = renameNew(dir, p.Temporary, p.Name)
			}
			if err == nil {
				return why
			}
			if tries > mostTries {
				return p.stuck(err)
			}
		case err == nil && !back && errors.Is(lookErr, fs.ErrNotExist): // the exchange was done, and then somebody removed the old file
			return nil
		case err != nil && lookErr != nil && !back: // nothing is known of the temporary file
			return exchangeError(err)
		case lookErr != nil && back:
			return p.stuck(errors.Join(err, lookErr))
		case lookErr == nil && isExpected(dir, came, out):
			if err = p.Discard(dir); back {
				return errors.Join(why, err)
			}
			return asUnfinished(err, "the old one is still in "+p.Temporary.String())
		default:
			why = cmp.Or(lookErr, why)
			in, out, back = came, in, true
		}
		err = exchange(dir, p.Temporary, p.Name)
	}
}

func isExpected(dir int, came, out sys.Stat) bool {
	return isFile(came, out) || isLike(came, out) && isOverlay(dir)
}

// look returns the metadata of the temporary file. If the call fails, it tries once more, since after an error the file would stay there.
func (p *Pending) look(dir int) (sys.Stat, error) {
	s, err := sys.StatAt(dir, p.Temporary)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s, err = sys.StatAt(dir, p.Temporary)
	}
	return s, err
}

// mostTries is how often an exchange that fails is repeated, so that what others have saved gets its name back.
const mostTries = 10

// stuck returns the error after mostTries: what somebody else has saved is still in the temporary file.
func (p *Pending) stuck(err error) error {
	return &sys.Error{Op: "renameat2", Err: sys.Changed{Err: errors.Join(errors.New("what was saved meanwhile is in "+p.Temporary.String()), err)}}
}

func exchangeError(err error) error {
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.EISDIR {
		err = sys.Changed{Err: err}
	}
	return &sys.Error{Op: "renameat2", Err: err}
}

// oldFile is the descriptor of an Old.
type oldFile int

func (fd oldFile) Read(p []byte) (int, error) {
	n, err := sys.IgnoringEINTR(func() (int, error) { return unix.Read(int(fd), p) })
	if err != nil {
		return 0, &sys.Error{Op: "read", Err: err}
	}
	return n, nil
}
