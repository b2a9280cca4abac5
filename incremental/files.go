package incremental

import (
	"path"
	"strings"
)

// A fileSet has the files that a session knows: those that have a result, or for which fn has failed.
type fileSet struct {
	root  dirSet
	count int

	// The directory of the file that was met last, nil after a removal.
	last     *dirSet
	lastPath string // with a slash at its end
}

// meet notes that the run has met the file rel, which has this name, and reports whether the file is new here.
// A run calls it once for each file.
func (s *fileSet) meet(rel, name string, run uint32) bool {
	if dir := rel[:len(rel)-len(name)]; s.last == nil || s.lastPath != dir {
		s.last, s.lastPath = &s.root, dir
		for part := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
			if part != "" {
				s.last = s.last.sub(part)
			}
		}
	}
	isNew := s.last.meet(name, run)
	if isNew {
		s.count++
	}
	return isNew
}

// removeUnmet removes the file rel, and the files below rel, if the run has not met them. It keeps those below
// the unlisted directories. It appends the paths of the files that it removes to all.
func (s *fileSet) removeUnmet(all []string, rel string, run uint32, unlisted map[string]bool) []string {
	s.last = nil
	if rel == "." {
		return s.removeBelow(all, "", &s.root, run, unlisted)
	}
	chain, names := []*dirSet{&s.root}, []string{""}
	dir, base := path.Split(rel)
	for part := range strings.SplitSeq(dir, "/") {
		if part == "" {
			continue
		}
		d := chain[len(chain)-1].subs[part]
		if chain, names = append(chain, d), append(names, part); d == nil || unlisted[path.Join(names...)] {
			return all
		}
	}
	d := chain[len(chain)-1]
	d.index()
	if last, ok := d.files[base]; ok && last != run {
		delete(d.files, base)
		s.count--
		all = append(all, rel)
	}
	if sub := d.subs[base]; sub != nil {
		chain, names = append(chain, sub), append(names, base)
		all = s.removeBelow(all, rel+"/", sub, run, unlisted)
	}
	for i := len(chain) - 1; i > 0 && chain[i].isEmpty(); i-- {
		delete(chain[i-1].subs, names[i])
	}
	return all
}

// removeBelow is removeUnmet for all files in d and below. Prefix is the path of d, with a slash at its end.
func (s *fileSet) removeBelow(all []string, prefix string, d *dirSet, run uint32, unlisted map[string]bool) []string {
	if unlisted[strings.TrimSuffix(prefix, "/")] {
		return all
	}
	d.removeUnmet(run, func(name string) {
		s.count--
		all = append(all, prefix+name)
	})
	for name, sub := range d.subs {
		if all = s.removeBelow(all, prefix+name+"/", sub, run, unlisted); sub.isEmpty() {
			delete(d.subs, name)
		}
	}
	return all
}

// A dirSet has the files of a fileSet in one directory, and its directories that have such files below.
type dirSet struct {
	subs map[string]*dirSet
	// The files are in one of two forms. While one run has met all of them, they are a list, which takes a first run less time.
	names []string
	run   uint32            // the number of the run that has met names
	files map[string]uint32 // the number of the last run that has met the file
}

// sub returns the directory of this name in d.
func (d *dirSet) sub(name string) *dirSet {
	if d.subs == nil {
		d.subs = map[string]*dirSet{}
	}
	sub := d.subs[name]
	if sub == nil {
		sub = &dirSet{}
		d.subs[strings.Clone(name)] = sub
	}
	return sub
}

// meet is fileSet.meet for a file of d.
func (d *dirSet) meet(name string, run uint32) bool {
	if d.isOf(run) {
		d.names, d.run = append(d.names, name), run
		return true
	}
	d.index()
	_, was := d.files[name]
	d.files[name] = run
	return !was
}

// isOf reports whether the run has met all files, and they are in a list.
func (d *dirSet) isOf(run uint32) bool {
	return d.files == nil && (len(d.names) == 0 || d.run == run)
}

// index makes a map of the list.
func (d *dirSet) index() {
	if d.files != nil {
		return
	}
	d.files = make(map[string]uint32, len(d.names))
	for _, name := range d.names {
		d.files[name] = d.run
	}
	d.names = nil
}

// removeUnmet removes the files that the run has not met, and yields their names.
func (d *dirSet) removeUnmet(run uint32, yield func(name string)) {
	if d.isOf(run) {
		return
	}
	d.index()
	for name, last := range d.files {
		if last != run {
			delete(d.files, name)
			yield(name)
		}
	}
}

func (d *dirSet) isEmpty() bool { return len(d.names)+len(d.files)+len(d.subs) == 0 }
