package fileproc

import "testing"

// TestFaultsInTheColdMode: where all is listed ahead, every fault of an entry and every end at any step leaves as little
// behind as elsewhere. Inode numbers of the fault backend are hashes of the names, so they shuffle the files.
func TestFaultsInTheColdMode(t *testing.T) {
	AlwaysCold(t)
	for name, test := range map[string]func(*testing.T){
		"one entry":           TestFaultsOfOneEntry,
		"every type":          TestFaultsOfEveryType,
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
