package sys

import "time"

var begun = time.Now() // the start of ProcessorTime where it counts elapsed time
