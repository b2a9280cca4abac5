package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/watch/internal/events"
	"github.com/stretchr/testify/require"
)

// A model is a loop in a world in memory: a clock that a test moves, a file system whose times are that clock's, and a source of events.
// The test may make the source lose, delay, repeat and reorder events, or refuse watches. No test waits, and each time is exact.
//
// A test sets up fields, calls start, and then changes files, moves the clock by after or sync, and says what the loop must have yielded.
type model struct {
	*testing.T
	w     *Watcher[string] // its arguments may be set before start
	world *world

	// How events behave, from the moment when a field is set. Nil: each change gives its hints at once; each directory may be watched; all is well.
	tell    func(hints []events.Hint) []events.Hint // what becomes of the hints of a change
	late    func(events.Hint) time.Duration         // how late one comes
	add     func(rel string) error
	opening func() error
	syncing func() error

	source  *fakeSource // the last one that was opened
	sources int         // that are open
	opened  int         // in all
	watched []string    // what was added since the last call of takeWatched

	end     context.CancelCauseFunc
	ended   chan struct{}
	onYield func(c Change[string], err error) (goesOn bool) // called in the loop

	mu      sync.Mutex // guards what follows, and the events
	used    time.Duration
	tax     time.Duration // what each burst takes at least of the processors
	bursts  int           // grows with each
	turns   int           // of the loop, in all
	since   time.Time
	steps   int // that the loop has taken in the millisecond since then
	results map[string]string
	got     []string // what came in each burst, as text
	calls   int      // of fn
	looks   int      // at files, by metadata
	last    error
}

const settles = 2 * time.Second // the age from which a file shows each later change

// inModel runs a test in a separate bubble. The goroutines of the loop have to end in it.
func inModel(t *testing.T, test func(m *model)) {
	t.Helper()
	testtree.Set(t, &fsinfo.Settled, settles)
	file := filepath.Join(t.TempDir(), "c")
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, file)
		defer m.stop()
		test(m)
	})
}

func newModel(t *testing.T, file string) *model {
	m := &model{T: t, world: &world{files: fstest.MapFS{}}, results: map[string]string{}}
	opts := fileproc.Options{FS: m.world, Workers: 2}
	inc := incremental.Options[string]{File: file, Version: "1", Compare: incremental.CompareMetadata}
	m.w = New(modelRoot, inc, opts, m.fn)
	m.w.open = m.open
	m.w.processorTime = func() time.Duration {
		m.step()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.used += m.tax
		m.bursts++
		return m.used
	}
	m.world.put(modelRoot+"/", "")
	return m
}

// step counts what the loop does in each turn, and fails if that is too much: a loop that is always busy would never let the clock move.
func (m *model) step() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.since) > time.Millisecond {
		m.since, m.steps = time.Now(), 0
	}
	m.turns++
	if m.steps++; m.steps > 10_000 {
		panic("the loop is busy, and hardly any time passes")
	}
}

const modelRoot = "r" // in the world, so that it can be away

func (m *model) fn(f *fileproc.File) (string, error) {
	m.mu.Lock()
	m.calls++
	m.mu.Unlock()
	return content(f)
}

// old adds files that have settled before the loop begins, "name=content" each.
func (m *model) old(specs ...string) {
	for _, spec := range specs {
		name, text, _ := strings.Cut(spec, "=")
		m.world.put(modelRoot+"/"+name, text)
	}
	time.Sleep(time.Hour)
}

// start begins the loop, and returns when it has nothing to do.
func (m *model) start() {
	ctx, end := context.WithCancelCause(context.Background())
	selects := m.w.opts.Select
	m.w.opts.Select = func(f *fileproc.File) bool {
		m.mu.Lock()
		m.looks++
		m.mu.Unlock()
		return selects == nil || selects(f)
	}
	m.end, m.ended = end, make(chan struct{})
	go m.loop(ctx)
	synctest.Wait()
}

func (m *model) loop(ctx context.Context) {
	defer close(m.ended)
	for c, err := range m.w.Changes(ctx) {
		m.note(c, err)
		if m.onYield != nil && !m.onYield(c, err) {
			break
		}
	}
}

// note notes what was yielded.
func (m *model) note(c Change[string], err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.got) == 0 || strings.HasSuffix(m.got[len(m.got)-1], "settled") {
		m.got = append(m.got, "")
	}
	var text string
	var f *fileproc.Failure
	m.last = err
	switch {
	case errors.Is(err, ErrLimit):
		text = "limit"
	case errors.Is(err, incremental.ErrNotSaved):
		text = "not saved"
	case errors.As(err, &f):
		text = c.Rel + " fails"
		delete(m.results, c.Rel)
	case err != nil:
		text = err.Error()
	case c.Settled:
		text = "settled"
	case c.Kind == incremental.Deleted:
		text = c.Rel + " deleted"
		if _, ok := m.results[c.Rel]; !ok {
			text += ", which had no result"
		}
		delete(m.results, c.Rel)
	default:
		m.results[c.Rel] = c.Value
		text = fmt.Sprintf("%s=%s %v", c.Rel, c.Value, c.Kind)
	}
	burst := &m.got[len(m.got)-1]
	if *burst != "" {
		text = *burst + ", " + text
	}
	*burst = text
}

// take returns what has come since the last call, a text for each burst, in which what came is in the order of the paths.
func (m *model) take() []string {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, burst := range m.got {
		parts := strings.Split(burst, ", ")
		slices.Sort(parts)
		if i := slices.Index(parts, "settled"); i >= 0 {
			parts = append(slices.Delete(parts, i, i+1), "settled")
		}
		all = append(all, strings.Join(parts, ", "))
	}
	m.got = nil
	return all
}

// want fails the test unless these bursts have come by now, and nothing else.
func (m *model) want(bursts ...string) {
	m.Helper()
	require.Equal(m, bursts, m.take())
}

// after moves the clock by d. It fails the test unless nothing comes before the end of d, and these bursts come at that moment.
func (m *model) after(d time.Duration, bursts ...string) {
	m.Helper()
	time.Sleep(d - 1)
	require.Empty(m, m.take(), "before %v have passed", d)
	time.Sleep(time.Nanosecond)
	m.want(bursts...)
}

// rest lets the time pass in which files settle, and drops the bursts that come.
func (m *model) rest() {
	time.Sleep(2 * settles)
	m.take()
}

// sync calls Sync. It fails the test unless these bursts have come when it returns.
func (m *model) sync(bursts ...string) {
	m.Helper()
	require.NoError(m, m.w.Sync(m.Context()))
	m.want(bursts...)
}

// stop ends the loop, if one runs, and checks that nothing of it is left.
func (m *model) stop() {
	m.Helper()
	if m.end == nil {
		return
	}
	m.end(errTestEnds)
	<-m.ended
	require.Zero(m, m.sources, "sources that are open")
}

// takeLooks returns how often the loop has looked at a file since the last call.
func (m *model) takeLooks() int {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.looks
	m.looks = 0
	return n
}

// isIdle fails the test if the loop does anything within that time, even if it only wakes up. One save is allowed.
func (m *model) isIdle(d time.Duration) {
	m.Helper()
	synctest.Wait()
	m.mu.Lock()
	bursts, turns := m.bursts, m.turns
	m.mu.Unlock()
	m.after(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Equal(m, bursts, m.bursts, "bursts")
	require.LessOrEqual(m, m.turns-turns, 1, "turns of the loop")
}

// takeWatched returns the directories that were watched since the last call.
func (m *model) takeWatched() []string {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.watched)
	all := slices.Compact(m.watched)
	m.watched = nil
	return all
}

// full returns the results of a full run.
func (m *model) full() map[string]string {
	synctest.Wait()
	opts := m.w.opts
	opts.OnError = func(error) error { return nil }
	want := map[string]string{}
	type result struct{ rel, text string }
	all, err := fileproc.Process(m.Context(), m.w.root, opts, func(f *fileproc.File) (result, error) {
		text, err := content(f)
		return result{f.Rel(), text}, err
	})
	require.NoError(m, err)
	for _, r := range all {
		want[r.rel] = r.text
	}
	return want
}

// use notes that processors have worked.
func (m *model) use(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used += d
}

// write writes a file, and makes the directories that lead to it. The source tells of it when all is there: a hint may wake the loop at once.
func (m *model) write(rel, text string) {
	var hints []events.Hint
	for i, c := range rel {
		if c == '/' && !m.world.has(modelRoot+"/"+rel[:i]) {
			hints = append(hints, events.Hint{Rel: rel[:i], Tree: true})
		}
	}
	if !strings.HasSuffix(rel, "/") {
		hints = append(hints, events.Hint{Rel: rel})
	}
	m.world.put(modelRoot+"/"+rel, text)
	m.hint(hints...)
}

// remove removes a file, or a directory with all that is below.
func (m *model) remove(rel string) {
	isDir := m.world.move(modelRoot+"/"+rel, "")
	m.unwatch(rel)
	m.hint(events.Hint{Rel: rel, Tree: isDir})
}

// rename renames a file or a directory.
func (m *model) rename(from, to string) {
	isDir := m.world.move(modelRoot+"/"+from, modelRoot+"/"+to)
	m.unwatch(from)
	m.hint(events.Hint{Rel: from, Tree: isDir}, events.Hint{Rel: to, Tree: isDir})
}

// moveRoot moves root, or moves it back. The source, if there is one, tells of it.
func (m *model) moveRoot(from, to string) {
	m.world.move(from, to)
	m.mu.Lock()
	s := m.source
	if s != nil {
		s.moved = true
	}
	m.mu.Unlock()
	if s != nil {
		s.tell(events.Hint{Rel: ".", Tree: true})
	}
}

// hint tells the source of changes. It tells of those that happened in directories which were watched by now.
func (m *model) hint(changes ...events.Hint) {
	m.mu.Lock()
	s := m.source
	var told []events.Hint
	for _, h := range changes {
		if s != nil && !s.closed && s.dirs[path.Dir(h.Rel)] {
			told = append(told, h)
		}
	}
	m.mu.Unlock()
	if m.tell != nil {
		var left []events.Hint
		for _, h := range told {
			left = append(left, m.tell([]events.Hint{h})...)
		}
		told = left
	}
	if m.late == nil {
		s.tell(told...)
		return
	}
	for _, h := range told {
		s.tellLater(h, m.late(h))
	}
}

func (m *model) unwatch(rel string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.source == nil {
		return
	}
	for dir := range m.source.dirs {
		if dir == rel || strings.HasPrefix(dir, rel+"/") {
			delete(m.source.dirs, dir)
		}
	}
}

func (m *model) open(root string) (source, error) {
	require.Equal(m, m.w.root, root)
	if m.opening != nil {
		if err := m.opening(); err != nil {
			return nil, err
		}
	}
	if _, err := fs.Stat(m.world, modelRoot); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened++
	m.sources++
	m.source = &fakeSource{m: m, ready: make(chan struct{}, 1), dirs: map[string]bool{}}
	return m.source, nil
}

// A fakeSource tells of changes in the directories that were added.
type fakeSource struct {
	m     *model
	ready chan struct{}

	// Guarded by the model's mutex.
	dirs          map[string]bool
	hints         []events.Hint
	late          map[*time.Timer]events.Hint
	moved, closed bool
}

func (s *fakeSource) tell(hints ...events.Hint) {
	if len(hints) == 0 {
		return
	}
	s.m.mu.Lock()
	s.hints = append(s.hints, hints...)
	s.m.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *fakeSource) tellLater(h events.Hint, d time.Duration) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.late == nil {
		s.late = map[*time.Timer]events.Hint{}
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		s.m.mu.Lock()
		_, waits := s.late[timer]
		delete(s.late, timer)
		s.m.mu.Unlock()
		if waits {
			s.tell(h)
		}
	})
	s.late[timer] = h
}

func (s *fakeSource) Add(rel string) error {
	if s.m.add != nil {
		if err := s.m.add(rel); err != nil {
			return err
		}
	}
	info, err := fs.Stat(s.m.world, path.Join(modelRoot, rel))
	if err != nil {
		return err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if info.IsDir() {
		s.dirs[rel] = true
		s.m.watched = append(s.m.watched, rel)
	}
	return nil
}

func (s *fakeSource) Ready() <-chan struct{} {
	s.m.step()
	return s.ready
}

func (s *fakeSource) Take() []events.Hint {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	hints := s.hints
	s.hints = nil
	return hints
}

// Sync makes late hints come at once.
func (s *fakeSource) Sync(context.Context) error {
	s.m.mu.Lock()
	for timer, h := range s.late {
		timer.Stop()
		s.hints = append(s.hints, h)
	}
	clear(s.late)
	s.m.mu.Unlock()
	if s.m.syncing != nil {
		return s.m.syncing()
	}
	return nil
}

func (s *fakeSource) Moved() bool {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.moved
}

func (s *fakeSource) Close() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	require.False(s.m, s.closed, "a source is closed once")
	s.closed = true
	s.m.sources--
	return nil
}

// A world is a file system in memory, in which files are replaced and never altered, so that its readers need no lock.
type world struct {
	mu     sync.Mutex
	files  fstest.MapFS
	broken map[string]error  // of opening these names
	onStat func(name string) // called before metadata is looked up
}

func (w *world) Open(name string) (fs.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.broken[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return w.files.Open(name)
}

func (w *world) Stat(name string) (fs.FileInfo, error) {
	if w.onStat != nil {
		w.onStat(name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files.Stat(name)
}

// dirs returns the directories below root, and root.
func (w *world) dirs() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]bool{".": true}
	for name, file := range w.files {
		if rel, ok := strings.CutPrefix(name, modelRoot+"/"); ok && file.Mode.IsDir() {
			all[rel] = true
		}
	}
	return all
}

func (w *world) has(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files[name] != nil
}

// put writes a file, or makes a directory if name ends with a slash, and the directories that lead to it.
func (w *world) put(name, text string) {
	w.putAt(name, text, time.Now())
}

func (w *world) putAt(name, text string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, c := range name {
		if c == '/' && w.files[name[:i]] == nil {
			w.files[name[:i]] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, ModTime: at}
		}
	}
	if !strings.HasSuffix(name, "/") {
		w.files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644, ModTime: at}
	}
}

// move moves what is at from and below, to nowhere if to is empty, and reports whether it is a directory.
func (w *world) move(from, to string) (isDir bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := fstest.MapFS{}
	for name, file := range w.files {
		if name == from || strings.HasPrefix(name, from+"/") {
			moved[to+name[len(from):]] = file
			delete(w.files, name)
			isDir = isDir || name == from && file.Mode.IsDir()
		}
	}
	for name, file := range moved {
		if to != "" {
			w.files[name] = file
		}
	}
	return isDir
}

// fails lets each open of rel fail, or no more if err is nil.
func (w *world) fails(rel string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = map[string]error{}
	}
	w.broken[path.Join(modelRoot, rel)] = err
}
