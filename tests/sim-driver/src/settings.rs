//! What a context can be asked and told: limits, preferences, peers.
use crate::abi::*;
use crate::state::lock;
use std::ffi::c_void;

api! {
    fn cuCtxGetFlags(flags: *mut u32) {
        let mut st = lock();
        let context = st.current()?;
        put(flags, st.contexts[&context].flags)
    }
    fn cuCtxSetFlags(flags: u32) {
        let mut st = lock();
        let context = st.current()?;
        if let Some(c) = st.contexts.get_mut(&context) {
            c.flags = flags;
        }
        Ok(())
    }
    fn cuCtxGetApiVersion(context: Handle, version: *mut u32) {
        let mut st = lock();
        if context == 0 {
            st.current()?;
        } else if !st.contexts.contains_key(&context) {
            return Err(INVALID_CONTEXT);
        }
        put(version, 3020)
    }
    fn cuCtxGetLimit(value: *mut usize, limit: u32) {
        let mut st = lock();
        let context = st.current()?;
        let limit = *st.contexts[&context].limits.get(limit as usize).ok_or(INVALID_VALUE)?;
        put(value, limit)
    }
    fn cuCtxSetLimit(limit: u32, value: usize) {
        let mut st = lock();
        let context = st.current()?;
        let c = st.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?;
        *c.limits.get_mut(limit as usize).ok_or(INVALID_VALUE)? = value;
        Ok(())
    }
    fn cuCtxGetCacheConfig(config: *mut i32) {
        let mut st = lock();
        let context = st.current()?;
        put(config, st.contexts[&context].cache_config)
    }
    fn cuCtxSetCacheConfig(config: i32) {
        let mut st = lock();
        let context = st.current()?;
        if let Some(c) = st.contexts.get_mut(&context) {
            c.cache_config = config;
        }
        Ok(())
    }
    fn cuCtxGetSharedMemConfig(config: *mut i32) {
        let mut st = lock();
        let context = st.current()?;
        put(config, st.contexts[&context].bank_config)
    }
    fn cuCtxSetSharedMemConfig(config: i32) {
        lock().current().map(|_| ())
    }
    fn cuCtxResetPersistingL2Cache() {
        lock().current().map(|_| ())
    }
    fn cuCtxGetExecAffinity(out: *mut c_void, kind: i32) {
        Err(NOT_SUPPORTED)
    }
    fn cuCtxEnablePeerAccess(peer: Handle, flags: u32) {
        let mut st = lock();
        let (context, device) = st.current_device()?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        st.check_context(peer)?;
        if st.contexts[&peer].device == device {
            return Err(PEER_ACCESS_UNSUPPORTED);
        }
        let c = st.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?;
        if c.peers.contains(&peer) {
            return Err(PEER_ACCESS_ALREADY_ENABLED);
        }
        c.peers.push(peer);
        Ok(())
    }
    fn cuCtxDisablePeerAccess(peer: Handle) {
        let mut st = lock();
        let context = st.current()?;
        let c = st.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?;
        let before = c.peers.len();
        c.peers.retain(|p| *p != peer);
        if c.peers.len() == before { Err(PEER_ACCESS_NOT_ENABLED) } else { Ok(()) }
    }
}
