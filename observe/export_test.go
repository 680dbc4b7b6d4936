package observe

// ShareNow adds what is new to the boards, as Share does every 10 seconds.
func (o *Observer) ShareNow() {
	o.mu.Lock()
	s := o.sharing
	o.mu.Unlock()
	s.share(&o.callers)
}
