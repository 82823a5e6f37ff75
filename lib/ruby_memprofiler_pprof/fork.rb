# frozen_string_literal: true

module MemprofilerPprof
  # What a forked child has to do once Ruby runs in it: a pause around Ractor.new in the parent is over (the thread that
  # would end it is not in the child), and the timer of burst mode has to be made again, for a child inherits none.
  # @api private
  module Fork
    def _fork
      super.tap { |pid| Fork.mend if pid.zero? }
    end

    # Does not call _fork; comes back in the child alone.
    def daemon(...)
      super.tap { Fork.mend }
    end

    def self.mend
      reason = MemprofilerPprof.__send__(:mend_native)
      warn "MemprofilerPprof: at a fixed rate instead of in bursts, for #{reason}" if reason
    end
  end
  private_constant :Fork

  Process.singleton_class.prepend(Fork)
end
