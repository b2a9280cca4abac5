package cachefile

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

const benchEntries = 1_000_000

func benchFile(b *testing.B, changed int) string {
	file := filepath.Join(b.TempDir(), "cache")
	s := mustLoad(b, file)
	for i := range benchEntries {
		s.Add(0, testRecord(i))
	}
	require.NoError(b, s.save(nil))
	if changed > 0 {
		s := mustLoad(b, file)
		addChanged(s, 0, changed)
		require.NoError(b, s.save(nil))
	}
	return file
}

// addChanged adds n records whose files have changed.
func addChanged(s *Store, from, n int) {
	for i := from; i < from+n; i++ {
		rec := testRecord(i)
		rec.ID.ModTime += 5e9
		rec.ID.ChangeTime += 5e9
		s.Add(i%len(s.workers), rec)
	}
}

func BenchmarkStore(b *testing.B) {
	file := benchFile(b, 0)
	b.Run("op=load", func(b *testing.B) { benchLoad(b, file) })
	b.Run("op=load,log=100k", func(b *testing.B) { benchLoad(b, benchFile(b, 100_000)) })
	b.Run("op=find,by=inode", func(b *testing.B) { benchFind(b, file, func(rec Record) uint64 { return rec.ID.Inode }) })
	b.Run("op=find,by=name", func(b *testing.B) { benchFind(b, file, func(Record) uint64 { return 0 }) })
	b.Run("op=unseen", func(b *testing.B) {
		s := mustLoad(b, file)
		for b.Loop() {
			for range s.Unseen() {
			}
		}
	})
	b.Run("op=add", func(b *testing.B) {
		s := mustLoad(b, filepath.Join(b.TempDir(), "none"))
		rec := testRecord(1)
		b.ReportAllocs()
		for b.Loop() {
			s.Add(0, rec)
		}
	})
	b.Run("op=save,first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s := mustLoad(b, filepath.Join(b.TempDir(), "cache"))
			addChanged(s, 0, benchEntries)
			b.StartTimer()
			require.NoError(b, s.save(nil))
		}
	})
	b.Run("op=save,compact", func(b *testing.B) { // over the old file, with as much changed as the log cannot take
		for b.Loop() {
			b.StopTimer()
			s := mustLoad(b, file)
			addChanged(s, 0, 300_000)
			b.StartTimer()
			require.NoError(b, s.save(nil))
		}
	})
	b.Run("op=append,changed=10k", func(b *testing.B) {
		file := benchFile(b, 0)
		for b.Loop() {
			b.StopTimer()
			s := mustLoad(b, file)
			require.NoError(b, os.Truncate(file, s.disk.snapshotEnd))
			s = mustLoad(b, file)
			addChanged(s, 0, 10_000)
			b.StartTimer()
			require.NoError(b, s.save(nil))
		}
	})
}

func benchLoad(b *testing.B, file string) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var s *Store
	for b.Loop() {
		s = mustLoad(b, file)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	results := 0
	for i := range benchEntries {
		rec, _, ok := s.Lookup(testRecord(i).Path)
		if !ok {
			b.Fatal("lost a record")
		}
		results += len(rec.Result)
	}
	b.ReportMetric(float64(int64(after.HeapAlloc-before.HeapAlloc)-int64(results))/benchEntries, "B/entry")
}

// benchFind looks up the files of one directory after the other, in an order of their own.
func benchFind(b *testing.B, file string, inode func(Record) uint64) {
	s := mustLoad(b, file)
	const dirs = 1000
	type key struct {
		name  string
		inode uint64
	}
	var paths []string
	var files [dirs][]key
	for k, i := range rand.New(rand.NewPCG(1, 2)).Perm(benchEntries) {
		rec := testRecord(i)
		_, name := filepath.Split(rec.Path)
		if k < dirs {
			paths = append(paths, filepath.Dir(testRecord(k).Path)+"/")
		}
		files[i%dirs] = append(files[i%dirs], key{name, inode(rec)})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; {
		d := i / (benchEntries / dirs) * 7919 % dirs
		dir := s.Dir(paths[d])
		for _, f := range files[d] {
			rec, n, ok := s.Find(&dir, f.inode, f.name)
			if !ok || rec.ID.Inode == 0 {
				b.Fatal("lost a record")
			}
			s.MarkSeen(n)
			i++
		}
	}
}
