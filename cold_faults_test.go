package fileproc

import (
	"fmt"
	"sync"
	"testing"

	"github.com/fileproc/fileproc/internal/knobs"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// TestFaultsInTheColdMode: where all is listed ahead, every fault of an entry and every end at any step leaves as little
// behind as elsewhere. Inode numbers of the fault backend are hashes of the names, so they shuffle the files.
func TestFaultsInTheColdMode(t *testing.T) {
	testtree.NotInColdMode(t, "every test runs in it")
	testtree.Set(t, &knobs.AlwaysCold, true)
	for name, test := range map[string]func(*testing.T){
		"one entry":           TestFaultsOfOneEntry,
		"every type":          TestFaultsOfEveryType,
		"each call":           TestFaultsOfEachCall,
		"vanished":            TestFaultsVanishedDirectoryOfAWalk,
		"half a listing":      TestFaultsListingFailsHalfWay,
		"change after Select": TestFaultsChangeAfterSelect,
		"depth":               TestFaultsDepth,
		"cancel":              TestFaultsCancelAtEachCall,
		"cancel of a listing": TestFaultsCancelWhileListing,
		"cancel of a wait":    TestFaultsCancelWhileWaiting,
		"ignore file":         TestFaultsCancelInAnIgnoreFile,
		"ignore files":        TestIgnoreFilesWithFaults,
		"left":                TestFaultsStreamLeftAtEachResult,
		"stop":                TestFaultsStopAtEachFailure,
		"SkipAll":             TestFaultsSkipAllAtEachFile,
		"mishap":              TestFaultsMishapAtEachFile,
		"panic":               TestFaultsPanicAtEachCall,
		"ledger":              TestFaultsPanicLeavesABalancedLedger,
		"OnError":             TestFaultsPanicOfOnErrorAtEachFailure,
		"descriptors":         TestFaultsFewDescriptors,
		"three runs":          TestFaultsFewDescriptorsForThreeRuns,
		"nth open":            TestFaultsEveryNthOpen,
		"nothing open":        TestFaultsScarceRunKeepsNothingOpen,
		"links":               TestFaultsFewDescriptorsForLinks,
		"many ignore files":   TestIgnoreFilesFewDescriptorsForMany,
		"ordered":             TestOrderedIsInOrder,
		"ordered, ends":       TestOrderedEndsAtEachCall,
		"ordered, scarce":     TestOrderedFewDescriptors,
		"progress":            TestProgressIsWhatHasHappened,
		"closes":              TestDirCacheAfterAnyEnd,
	} {
		t.Run(name, test)
	}
}

// Every file that is listed ahead has a reference to its directory, and gives it back: one too few would keep the directory
// open to the end of the run, one too many would close it while it is in use.
func TestColdReferencesAreGivenBack(t *testing.T) {
	tree := func() *object {
		root := forest()
		for i := range 10 { // the last is listed first, while the run is not cold
			for j := range 30 {
				root.kids[1+i].kids = append(root.kids[1+i].kids, file(fmt.Sprint("more", j), fmt.Sprint("more ", i, j)))
			}
		}
		return root
	}
	for _, mode := range []string{"cold", "entered at each third file, left at each fifth"} {
		for _, window := range []int32{0, 1, 5, windowMax} {
			t.Run(fmt.Sprintf("%s/window=%d", mode, window), func(t *testing.T) {
				everyWorld(t, tree, func(t *testing.T, w *world, workers int) {
					if knobs.AlwaysCold = mode == "cold"; knobs.AlwaysCold {
						defer func() { knobs.AlwaysCold = testtree.Cold }()
					}
					var mu sync.Mutex
					visits := 0
					out := w.process(t.Context(), Options{Workers: workers}, func(f *File) error {
						mu.Lock()
						defer mu.Unlock()
						if visits++; visits == 1 {
							f.w.cold.window.Store(window)
						}
						if mode != "cold" && visits%3 == 0 {
							f.w.cold.on.Store(true)
						}
						if mode != "cold" && visits%5 == 0 {
							f.w.cold.on.Store(false)
							f.w.pool.wake()
						}
						return nil
					})
					require.NoError(t, out.err)
					w.requireSound(t, out)
					require.Len(t, out.got, len(w.contents()))
				})
			})
		}
	}
}
