package sys

import "time"

var begun = time.Now() // where ProcessorTime is the time that has passed
