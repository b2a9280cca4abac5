package fileproc

import (
	"cmp"
	"errors"

	"github.com/fileproc/fileproc/internal/backend"
	"github.com/fileproc/fileproc/internal/content"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/fileproc/fileproc/internal/sys"
)

// Replace gives the file new content. It writes a temporary file in the same directory,
// which then takes the file's name. So at each moment the name has the old content or the
// new one, whole, also if the process is killed or the disk is full.
//
// The file must still be what fn got, as for [File.Unchanged]. Otherwise it stays as it
// is, and the error wraps [ErrChanged]. If fn overwrites Data, set [Options.Stat]: without
// metadata, Replace compares the file with Data. On Linux and macOS the two files exchange
// names. Replace then looks at the file that it has taken away, and puts it back if
// somebody has saved it in the last moment. On other systems, with the generic backend,
// and on file systems without such an exchange (NFS, vfat), the last look is directly
// before a rename. A program that already has the file open goes on writing to the old
// file.
//
// The new file keeps the mode (setuid and setgid as after a write), the owner, the group,
// the flags of chattr or chflags, and on Linux, macOS, FreeBSD and NetBSD the extended
// attributes. ACLs stay on Linux, macOS and Windows; other systems lose them. Windows
// keeps attributes, owner, ACL, streams and creation time, but no auditing rules. What
// depends on the content (security.capability, ima and evm) goes, as after a write. If
// something cannot be kept, such as the owner of another user's file, Replace fails before
// it changes anything. It cannot keep attributes that the process may not see. It needs the
// right to write the directory, not the file. But on Windows it fails for a file that is
// read-only, or that another program has open without sharing its deletion.
//
// If the file has several names, the others keep the old content, as with git and sed -i.
// If [Stat].Links is above 1, os.WriteFile changes all, but not whole. Through a symbolic
// link, Replace replaces the file that the link leads to, in its own directory. A listing
// does not give a replaced file again. With [Options.Symlinks], its other paths are skipped,
// too: [SkippedDuplicate]. But if two workers have the file at once, one gets [ErrChanged].
//
// Afterwards Data is as before, Stat is that of the new file, and Replace may be called
// again. [Report].Replaced counts the files. With [Options.Durable], the file may get the new
// content later, and Stat is then still that of the old one.
//
// No temporary file is left when the run returns, unless an error names it. A killed
// process leaves at most one per worker, with Durable 1,000 per worker and file system:
// .fileproc-*.tmp, where * is 32 hexadecimal digits. No run delivers or counts them. A run
// that replaces a file removes those over an hour old.
//
// The error wraps fs.ErrInvalid if the file is not a regular one. It wraps
// errors.ErrUnsupported on Plan 9 (no rename to a name that exists) and wasip1 (no modes),
// with [Options.FS], for a File of [NewFile], and if root is a FIFO or a device. But
// Replace writes to an FS with a method WriteFile, such as a Store and the FS of package
// cache: then the FS decides whether a file is whole at each moment, and what it keeps.
func (f *File) Replace(content []byte) error {
	err := f.notRegular("replace")
	if err != nil {
		return err
	}
	switch {
	case f.inSelect:
		err = errors.New("called in Options.Select, before the file is read")
	case f.w.run.cfg == nil || f.node.tree.stream != 0:
		err = backend.ErrNotReplaceable
	default:
		err = f.w.withDir(f.node, func(d backend.Directory) error { return f.replaceIn(d, content) })
	}
	if err != nil {
		return sys.PathError("replace", f.Path(), err)
	}
	return nil
}

func (f *File) replaceIn(d backend.Directory, content []byte) (err error) {
	f.skipFromNowOn()
	defer func() {
		if !replace.IsDone(err) {
			f.notePath(-1)
		}
	}()
	if g := f.w.self.(*worker).groupOf(f, d); g != nil {
		return f.prepareIn(g, d, content)
	}
	replaceAs := func(d backend.Directory, name names.Name) error {
		r, ok := d.(backend.Replacer)
		if !ok {
			return backend.ErrNotReplaceable
		}
		s, err := r.Replace(name, content, f.check, f.w.run.cfg.durable)
		if !replace.IsDone(err) {
			return err
		}
		f.content.Stat, f.content.HasStat, f.lateStat = s, true, false
		if on := f.w.run.cfg.onReplace; on != nil {
			on(f.Worker(), content)
		}
		if !f.replaced {
			f.replaced = true
			f.w.self.(*worker).countReplaced()
		}
		return err
	}
	switch d := d.(type) {
	case linkDir:
		return d.inTarget(f.name, replaceAs)
	case *backend.SoleFile:
		return d.InParent(replaceAs)
	}
	return replaceAs(d, f.name)
}

// check is the replace.Check for f. If only the change time differs, another name or the
// mode may have changed: then the content decides.
func (f *File) check(now sys.Stat, old replace.Old) error {
	was, ok := f.metadata()
	same := !ok
	if ok {
		if content.IsSame(was, now) {
			return nil
		}
		was.ChangeTime = now.ChangeTime
		same = content.IsSame(was, now) && f.content.Data != nil
	}
	if same && f.content.Data != nil {
		var err error
		if same, err = f.hasContent(old); err != nil {
			return err
		}
	}
	if !same {
		return &sys.Error{Op: "fstat", Err: ErrChanged}
	}
	return nil
}

// skipFromNowOn keeps f from coming again: from the listing of its directory, and, with
// Options.Symlinks, by another path. The call comes before the new file has the name.
func (f *File) skipFromNowOn() {
	n, r := f.node, f.w.run
	if r.replaced.Load() == nil {
		r.replaced.CompareAndSwap(nil, new(replace.Done[*node]))
	}
	if n.isListed() {
		r.replaced.Load().Add(n, &n.listed, f.name.String())
	}
	f.notePath(1)
}

// notePath notes that the run replaces f. N is -1 if it has failed.
func (f *File) notePath(n int) {
	if r := f.w.run; r.cfg.followFiles {
		real, path := f.paths()
		r.replaced.Load().AddPath(real, path, n)
	}
}

// paths returns the path of f without links, and its own.
func (f *File) paths() (real, path string) {
	path = f.Path()
	return cmp.Or(f.LinkTarget(), path), path
}

// wasReplaced reports whether the run has replaced f, which it has reached by another path then, with followFiles.
func (w *worker) wasReplaced(f *File) bool {
	if f.typ != 0 {
		return false
	}
	r := w.replaced.Load()
	return r != nil && r.HasOtherPath(f.paths())
}

// mostLeftovers is how many temporary files a run notes.
const mostLeftovers = 1000

// noteTemporary notes that n lists a temporary file.
func (w *worker) noteTemporary(n *node, name []byte) {
	kept := w.arena.Add(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.leftovers) < mostLeftovers {
		w.leftovers = append(w.leftovers, temporary{n, kept})
	}
}

// clean removes the temporary files that nobody uses any more, if the run has replaced
// files: a run that reads never writes. All workers have ended.
func (s *shared) clean() {
	if s.replaced.Load() == nil || s.stopped() {
		return
	}
	for _, t := range s.leftovers {
		d, err := s.dirs.acquire(t.node)
		if err != nil {
			continue // the next run tries again
		}
		if d, ok := d.(backend.Cleaner); ok {
			_ = d.Clean(t.name)
		}
		s.dirs.release(t.node, 1, 0)
	}
}

// groupOf returns the group of f, which is in d. It returns nil if somebody may wait for fn's
// result: the loop of a Stream, package incremental, or the sequence of Options.Files.
func (w *worker) groupOf(f *File, d backend.Directory) *backend.Group[*prepared] {
	if !w.cfg.durable || f.replaced || w.calls.yieldError != nil || w.cfg.onReplace != nil || !w.given.isOver() {
		return nil
	}
	return w.groups.For(d)
}

func (f *File) prepareIn(g *backend.Group[*prepared], d backend.Directory, content []byte) error {
	p, err := g.Prepare(d, f.node, f.name, content, f.check)
	if err == nil {
		if f.prepared != nil { // by an earlier call
			_ = f.prepared.Commit(errStopped)
			f.notePath(-1)
		}
		f.prepared = &prepared{Waiting: p, node: f.node, group: g, bytes: len(content)}
	}
	return err
}

// settleLater is settle for a file that fn has replaced. If fn has failed, the file does not
// wait for others: the error may end the run.
func (w *worker) settleLater(p *prepared, err error) {
	switch p.err = err; {
	case err != nil && !errors.Is(err, ErrSkip):
		w.makeDurable(p.group, []*prepared{p}, nil)
	case p.group.Add(p, p.bytes):
		w.makeDurable(p.group, p.group.Take(), nil)
	}
}

// makeDurable makes files durable and settles them, or removes their new content because of failed.
func (w *worker) makeDurable(disk backend.Syncer, files []*prepared, failed error) {
	errs := backend.MakeDurable(disk, len(files), func(i int, failed error) error { return files[i].Commit(failed) }, failed)
	defer func() { w.abandon(len(files)) }() // OnError may panic
	for _, err := range errs {
		p := files[0]
		files = files[1:]
		f := &File{w: &w.access, node: p.node, name: p.Name}
		if replace.IsDone(err) {
			w.countReplaced()
		} else {
			f.notePath(-1)
		}
		if err != nil {
			err = sys.PathError("replace", p.node.path(p.Name.String()), err)
		} else if p.deliver != nil {
			p.deliver(w.slot)
		}
		w.settle(f, cmp.Or(err, p.err))
	}
}

// settleGroups settles the files that still wait. All workers have ended.
func (s *shared) settleGroups(failed error) {
	for _, w := range s.workers {
		if w.slot == noSlot { // it was one too many, and others keep the slots
			w.slot = 0 // for deliver
		}
		for _, g := range w.groups {
			w.abandon(1) // the file that OnError gets, if it panics: during a visit, the pool counts it
			w.makeDurable(g, g.Take(), failed)
			w.abandon(-1)
		}
	}
}
