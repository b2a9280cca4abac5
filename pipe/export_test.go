package pipe

const FlushAfter = flushAfter

var AppendName = appendName
