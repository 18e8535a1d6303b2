package config

// perSecondRows are the settings of a second Redis, for limits by the second.
func (p *parser) perSecondRows() []row {
	r := &p.s.PerSecond
	return []row{
		{env: "REDIS_PERSECOND", def: "false", value: boolean(&p.perSecond), help: "Keep the buckets of limits by the second in a Redis of their own. It shares the settings of the first that are not named here, the certificates among them"},
		{env: "REDIS_PERSECOND_URL", value: text(&p.second.url), show: maskURL, help: "Its address, in the forms of REDIS_URL"},
		{env: "REDIS_PERSECOND_TYPE", def: Single, value: choice(&r.Type, Single, Sentinel, Cluster), help: "How it is run"},
		{env: "REDIS_PERSECOND_SOCKET_TYPE", value: choice(&p.second.socketType, "tcp", "unix"), help: "Kind of its address"},
		{env: "REDIS_PERSECOND_AUTH", value: text(&p.second.auth), show: hide, help: "password or user:password for it"},
		{env: "REDIS_PERSECOND_SENTINEL_AUTH", value: text(&p.second.sentinel), show: hide, help: "The same for its sentinels"},
		{env: "REDIS_PERSECOND_TLS", def: "false", value: boolean(&r.TLS), help: "Encrypt connections to it"},
		{env: "REDIS_PERSECOND_POOL_SIZE", def: "10", value: integer(&r.PoolSize, 0, 10000), help: "Most connections to one of its servers; 0 is the default"},
		{env: "REDIS_PERSECOND_TIMEOUT", def: "10s", value: duration(&r.DialTimeout, 0), help: "Most time for making a connection to it; 0 is the default"},
	}
}

// resolvePerSecond makes one thing of them, after those of the first Redis.
func (p *parser) resolvePerSecond() {
	if !p.perSecond {
		p.s.PerSecond = Redis{}
		return
	}
	for _, name := range []string{"REDIS_URL", "REDIS_PERSECOND_URL"} {
		if !p.has(name) {
			p.fail("REDIS_PERSECOND", "is set, and %s is not", name)
			return
		}
	}
	first, r := &p.s.Redis, &p.s.PerSecond
	if !p.reach(r, p.second, "REDIS_PERSECOND") {
		return
	}
	r.CACert, r.ClientCert, r.ClientKey = first.CACert, first.ClientCert, first.ClientKey
	r.SkipHostnameVerification = first.SkipHostnameVerification
	r.Budget, r.Slow, r.MaxInFlight, r.HealthCheck = first.Budget, first.Slow, first.MaxInFlight, first.HealthCheck
}
